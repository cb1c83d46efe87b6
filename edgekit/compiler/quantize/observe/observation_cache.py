"""Observations cached on disk, so that a model is calibrated once for the same samples.

One file for each (model, samples): a JSON header, the arrays as raw little-endian float32, and the sha256 of
both. A file that cannot be read or is corrupt counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.system import ownership
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.records_folder import records_folder
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Array, Json

FORMAT = 2
CACHE_LIMIT_BYTES = 512 * 2**20
"""Size of the cache; the least recently used entries are evicted. One entry takes at most a quarter of it."""
HEADER_LIMIT_BYTES = 16 * 2**20
"""Of the JSON header: about a hundred bytes a tensor."""

_DIGEST_BYTES = 32


def recall(key: str) -> dict[str, Observation] | None:
    """Return the observations recorded under that key, or None if there are no readable ones."""
    path = _path(key)
    try:
        ownership.refuse_foreign(path.parent)
        data = read_plain(path, CACHE_LIMIT_BYTES)
    except OSError:
        return None
    body, digest = memoryview(data)[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        observations = _parse(body)
    except (JsonError, ValueError, TypeError, KeyError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # marks it as recently used
    return observations


def record(key: str, observations: Mapping[str, Observation]) -> bool:
    """Record observations; False if they could not be written or are too large."""
    size = sum(o.low.nbytes + o.high.nbytes + o.sample.nbytes for o in observations.values())
    if size > CACHE_LIMIT_BYTES // 4:
        return False
    path = _path(key)
    try:
        private_folder(path.parent)
        write_atomically(path, _pieces(observations), 0o600)
        _evict_oldest(path.parent)
    except (OSError, JsonError):
        return False
    return True


def observations_folder() -> Path:
    """Return the folder of the observations; it need not exist."""
    return records_folder() / "observations"


def _path(key: str) -> Path:
    return observations_folder() / f"{key}.bin"


def _pieces(observations: Mapping[str, Observation]) -> Iterator[bytes]:
    header = {
        "format": FORMAT,
        "values": [[name, len(o.low), len(o.sample), o.axis, o.count] for name, o in observations.items()],
    }
    digest = hashlib.sha256()
    first = strict_json.encode(header)
    pieces = [len(first).to_bytes(8, "little"), first]
    for piece in pieces:
        digest.update(piece)
        yield piece
    for observation in observations.values():
        for array in (observation.low, observation.high, observation.sample):
            piece = array.astype("<f4", copy=False).tobytes()
            digest.update(piece)
            yield piece
    yield digest.digest()


def _parse(body: memoryview) -> dict[str, Observation]:
    length = int.from_bytes(body[:8], "little")
    header: Json = strict_json.decode(bytes(body[8 : 8 + length]), "observations", HEADER_LIMIT_BYTES)
    if header["format"] != FORMAT:
        raise ValueError
    numbers = np.frombuffer(body[8 + length :], "<f4").astype(np.float32, copy=False)
    parsed: dict[str, Observation] = {}
    start = 0

    def take(size: int) -> Array:
        nonlocal start
        if size < 0 or start + size > len(numbers):
            raise ValueError
        start += size
        return numbers[start - size : start]

    for name, channels, positions, axis, count in header["values"]:
        low, high = take(channels), take(channels)
        parsed[name] = Observation(low, high, take(positions * channels).reshape(-1, channels), axis, count)
    if start != len(numbers):
        raise ValueError
    return parsed


def _evict_oldest(folder: Path) -> None:
    entries = []
    for path in folder.glob("*.bin"):
        with contextlib.suppress(FileNotFoundError):  # another process evicted it first
            facts = path.stat()
            entries.append((facts.st_mtime_ns, path, facts.st_size))
    total = sum(size for _, _, size in entries)
    for _, path, size in sorted(entries):
        if total <= CACHE_LIMIT_BYTES:
            return
        path.unlink(missing_ok=True)
        total -= size
