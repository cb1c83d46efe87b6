"""Measurements of candidates, cached on disk under everything they depend on.

The candidates that a build ships are recorded, too, under the structure of the graph. The search for another
model of that structure, e.g. one that was trained again, begins with them. A process that opens a model
writes to that model's folder alone, so the process that started it copies these records to a common folder.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TypeVar, cast

from edgekit._version import __version__
from edgekit.system import cpu, json_records
from edgekit.system import records_folder as model_records
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import decode, encode
from edgekit.system.formats.json_schema import ManifestError
from edgekit.tensor_spec import Json

T = TypeVar("T")
RECORDS_LIMIT = 5000
"""Records kept; the oldest go first."""
RECORD_LIMIT_BYTES = 4 << 20
SHIPPED = "shipped"
"""Folder of the candidates that builds shipped, below the folder of a model and below the cache folder."""
SHIPPED_LIMIT, SHIPPED_LIMIT_BYTES = 1000, 1 << 20


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


def recall_shipped(name: str, kind: type[T]) -> T | None:
    """Return what the last build of a graph of this structure shipped; None if there is no valid record. A
    stranger's model may have caused any of them, so the candidates must be checked and measured."""
    try:
        stored = json_records.recall(cache_folder() / SHIPPED, name, SHIPPED_LIMIT_BYTES)
        return cast(T, decode(kind, stored, "record"))
    except ManifestError:
        return None


def record_shipped(name: str, kind: type[T], value: T) -> None:
    """Record in the model's folder what a build ships."""
    folder = model_records.records_folder() / SHIPPED
    json_records.record(folder, name, encode(kind, value), SHIPPED_LIMIT)


def share_shipped(folder: Path | None) -> None:
    """Copy what the builds of a model shipped to the common folder, for other models of its structure.

    Args:
        folder: The model's folder, which a process that is not trusted has written to.
    """
    for path in sorted(folder.glob(f"{SHIPPED}/*.json"))[:SHIPPED_LIMIT] if folder is not None else ():
        stored = json_records.recall(path.parent, path.stem, SHIPPED_LIMIT_BYTES)
        if re.fullmatch("[0-9a-f]{64}", path.stem) and isinstance(stored, dict):
            json_records.record(cache_folder() / SHIPPED, path.stem, stored, SHIPPED_LIMIT)


def records_folder() -> Path:
    return model_records.records_folder() / "searches"
