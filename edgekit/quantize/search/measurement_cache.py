"""What was measured of candidates, remembered by all that it depends on (edgekit/system/json_records.py)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit._version import __version__
from edgekit.formats import strict_json
from edgekit.system import cache_folder, cpu, json_records
from edgekit.tensors import Json

RECORDS_LIMIT = 5000
"""Records kept; the oldest go first."""
RECORD_LIMIT_BYTES = 4 << 20


def key(*facts: Json) -> str:
    """Name of a record: sha256 over the facts, EdgeKit's version and the processor."""
    return hashlib.sha256(strict_json.encode([__version__, cpu.cpu_name(), *facts])).hexdigest()


def recall(name: str) -> Json:
    """What is recorded under that name, or None."""
    return json_records.recall(records_folder(), name, RECORD_LIMIT_BYTES)


def record(name: str, value: Json) -> bool:
    """Remember a value. False where it could not be written."""
    return json_records.record(records_folder(), name, value, RECORDS_LIMIT)


def records_folder() -> Path:
    """Where records are; it need not exist."""
    return cache_folder.cache_folder() / "searches"
