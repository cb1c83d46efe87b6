"""Measurements of candidates, cached on disk under everything they depend on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar, cast

from edgekit._version import __version__
from edgekit.system import cpu, json_records
from edgekit.system import records_folder as model_records
from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import decode, encode
from edgekit.system.formats.json_schema import ManifestError
from edgekit.tensor_spec import Json

T = TypeVar("T")
RECORDS_LIMIT = 5000
"""Records kept; the oldest go first."""
RECORD_LIMIT_BYTES = 4 << 20


def key(*facts: Json) -> str:
    """Compute the name of a record: sha256 over the facts, EdgeKit's version and the processor."""
    return hashlib.sha256(strict_json.encode([__version__, cpu.identity(), *facts])).hexdigest()


def recall(name: str, kind: type[T]) -> T | None:
    """Return the value recorded under that name; None if it is missing or not of this type."""
    try:
        stored = json_records.recall(records_folder(), name, RECORD_LIMIT_BYTES)
        return cast(T, decode(kind, stored, "record"))
    except ManifestError:
        return None


def record(name: str, kind: type[T], value: T) -> bool:
    """Record a value of this type. Return False if it could not be written."""
    return json_records.record(records_folder(), name, encode(kind, value), RECORDS_LIMIT)


def records_folder() -> Path:
    return model_records.records_folder() / "searches"
