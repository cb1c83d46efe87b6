"""Measurements of candidates, cached on disk under everything they depend on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from edgekit._version import __version__
from edgekit.system import cpu, json_records
from edgekit.system import records_folder as model_records
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json

RECORDS_LIMIT = 5000
"""Records kept; the oldest go first."""
RECORD_LIMIT_BYTES = 4 << 20


def key(*facts: Json) -> str:
    """Compute the name of a record: sha256 over the facts, EdgeKit's version and the processor."""
    return hashlib.sha256(strict_json.encode([__version__, cpu.identity(), *facts])).hexdigest()


def recall(name: str) -> Json:
    """Return the value recorded under that name, or None."""
    return json_records.recall(records_folder(), name, RECORD_LIMIT_BYTES)


def record(name: str, value: Json) -> bool:
    """Record a value. Return False if it could not be written."""
    return json_records.record(records_folder(), name, value, RECORDS_LIMIT)


def figures_as_json(figures: Mapping[str, float]) -> Json:
    """Convert figures by name to JSON, with every digit; JSON has no infinity.

    >>> figures_as_json({"conv": 12.5, "add": float("inf")})
    {'conv': '12.5', 'add': 'inf'}
    """
    return {name: repr(float(value)) for name, value in figures.items()}


def parse_figures(record: Json) -> dict[str, float]:
    """Parse the output of :func:`figures_as_json`; {} for anything else."""
    try:
        return {str(name): float(value) for name, value in record.items()}
    except (AttributeError, TypeError, ValueError):
        return {}


def records_folder() -> Path:
    """Return the folder of the records; it need not exist."""
    return model_records.records_folder() / "searches"
