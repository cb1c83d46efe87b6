"""Timings measured on this machine: one small JSON file each, in EdgeKit's cache folder.

A timing belongs to an artifact (sha256 of its files), an engine version, a processor and a number of threads.
Timings are optional: one that cannot be read or written is treated as missing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from edgekit.system import json_records
from edgekit.system.cpu import identity
from edgekit.system.formats import strict_json
from edgekit.system.records_folder import records_folder
from edgekit.tensor_spec import Content, Json

TIMINGS_LIMIT = 2000
"""Timings kept; the oldest are removed first."""
TIMING_LIMIT_BYTES = 16_384


def files_digest(files: Mapping[str, Content]) -> str:
    """Return the sha256 over an artifact's files: their names and contents, in hexadecimal."""
    return digest_of({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})


def digest_of(sha256_by_file: Mapping[str, str]) -> str:
    """Return ``files_digest`` from the hashes of the files, as a bundle declares them, without reading them.

    >>> files_digest({"a": b""}) == digest_of({"a": hashlib.sha256(b"").hexdigest()})
    True
    """
    lines = "".join(f"{sha256_by_file[name]}  {name}\n" for name in sorted(sha256_by_file))
    return hashlib.sha256(lines.encode("utf-8")).hexdigest()


def run_digest(artifact_digest: str, options: Mapping[str, Json]) -> str:
    """Return the identity of what runs: an artifact's files and its options, e.g. another arithmetic.

    >>> run_digest("a", {}) == run_digest("a", {"arithmetic": "bf16"})
    False
    """
    return hashlib.sha256(strict_json.encode([artifact_digest, dict(options)])).hexdigest()


def timing_key(artifact_digest: str, engine_version: str, threads: int, kind: str = "verify") -> str:
    """Return the key of a timing on this machine.

    Args:
        kind: Quantity that was measured: ``verify``: the bare engine, ``session``: Session.run.
    """
    facts = strict_json.encode([kind, artifact_digest, engine_version, identity(), threads])
    return hashlib.sha256(facts).hexdigest()


def recall(key: str, fields: Mapping[str, type] = MappingProxyType({})) -> dict[str, Json] | None:
    """Return the timing of that key, or None if there is no readable one, or one that is not whole.

    Args:
        fields: Required fields besides ``p50_ms``, by type: positive numbers, and text that is not empty.
    """
    timing = json_records.recall(timings_folder(), key, TIMING_LIMIT_BYTES)
    return timing if isinstance(timing, dict) and is_whole(timing, fields) else None


def is_whole(timing: Json, fields: Mapping[str, type]) -> bool:
    """Return whether a timing has ``p50_ms`` and these fields, each of its type."""
    if milliseconds_of(timing) is None:
        return False
    return all(_is(timing.get(name), kind) for name, kind in fields.items())


def _is(value: Json, kind: type) -> bool:
    if kind is float:
        return milliseconds_of({"p50_ms": value}) is not None
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, kind) and bool(value)


def milliseconds_of(timing: Json) -> float | None:
    """``p50_ms`` of a timing; None if it is not a positive number.

    >>> milliseconds_of({"p50_ms": 7.2}), milliseconds_of({"p50_ms": True}), milliseconds_of(None)
    (7.2, None, None)
    """
    p50 = timing.get("p50_ms") if isinstance(timing, dict) else None
    if isinstance(p50, bool) or not isinstance(p50, (int, float)):
        return None
    return float(p50) if 0 < p50 < math.inf else None


def record(key: str, timing: Mapping[str, Json]) -> bool:
    """Store a timing, replacing one of that key. False if it could not be written."""
    return json_records.record(timings_folder(), key, timing, TIMINGS_LIMIT)


def timings_folder() -> Path:
    """Return the folder of timings; it need not exist."""
    return records_folder() / "timings"
