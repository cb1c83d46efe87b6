"""KV caches of system prompts on disk: a device that was restarted does not read them again.

    EDGEKIT_CACHE/prefixes/<of the model>/<of the tokens>.kv

A folder belongs to one artifact and one engine version. A file appears whole or not at all, and one that is
damaged is removed. Folder and files are this user's alone: a cache tells what its prompt said.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.system import ownership
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.tensor_spec import Array

LIMIT_BYTES = 256 << 20
"""Disk of all models' files; the least recently used are removed first."""
FILE_LIMIT_BYTES = 1 << 30
MAGIC = b"EDGEKV1\0"
START = struct.Struct("<8sI")
"""Magic, crc32 of all that follows."""
HEADER = struct.Struct("<I4s4I")
"""Tokens, element type (f: float32, e: float16), shape; then tokens and values."""
HEAD_BYTES = START.size + HEADER.size
DTYPES: dict[bytes, np.dtype[Any]] = {b"f\0\0\0": np.dtype(np.float32), b"e\0\0\0": np.dtype(np.float16)}


class PrefixFiles:
    """The files of one model. Not thread-safe; other processes may use them at the same time.

    Args:
        identity: Hash of the artifact and the engine's version.
        limit_bytes: Maximum size of all models' files.

    Attributes:
        note: Why nothing is kept; empty if it is.
    """

    def __init__(self, identity: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self.note = ""
        self._limit_bytes = limit_bytes
        self._root = cache_folder() / "prefixes"
        self._folder = self._root / hashlib.sha256(identity.encode()).hexdigest()[:32]
        self._tokens: dict[Path, list[int]] = {}
        try:
            private_folder(self._folder)
            for path in sorted(self._folder.glob("*.kv")):
                tokens = _tokens_of(path)
                if tokens is None:
                    _remove(path)
                else:
                    self._tokens[path] = tokens
        except OSError as problem:
            self.note = f"{self._root} cannot be used: {problem.strerror or problem}"

    def __len__(self) -> int:
        return len(self._tokens)

    def common(self, tokens: list[int]) -> int:
        """Return the longest beginning of a text that is in a file."""
        return max((common_length(prefix, tokens) for prefix in self._tokens.values()), default=0)

    def longest(self, tokens: list[int]) -> tuple[list[int], Array] | None:
        """Return the file with the longest beginning in common with a text.

        Returns:
            Its tokens and its cache, as they were kept; None if there is none, or it was damaged.
        """
        path = max(self._tokens, key=lambda path: common_length(self._tokens[path], tokens), default=None)
        if path is None:
            return None
        try:
            content = ownership.read_own(path, FILE_LIMIT_BYTES)
            parsed = _parsed(content)
            os.utime(path)
        except (OSError, ValueError):
            del self._tokens[path]
            _remove(path)
            return None
        return parsed

    def keep(self, tokens: list[int], cache: Array) -> None:
        """Write a cache, unless it exists already. A write error is not raised."""
        if self.note or self.common(tokens) == len(tokens):
            return
        content = _content(tokens, cache)
        if len(content) > min(self._limit_bytes, FILE_LIMIT_BYTES):
            return
        name = hashlib.sha256(np.array(tokens, np.int32).tobytes()).hexdigest()[:32]
        path = self._folder / f"{name}.kv"
        try:
            self._remove_oldest(len(content))
            write_atomically(path, [content], 0o600)
        except OSError as problem:
            self.note = f"{self._root} cannot be written: {problem.strerror or problem}"
            return
        self._tokens[path] = tokens[:]

    def _remove_oldest(self, size_bytes: int) -> None:
        """Remove the least recently used files, and drafts of processes that died an hour ago."""
        files = []
        for path in self._root.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # removed by another process meanwhile
                facts = path.lstat()
                if path.suffix == ".part" and facts.st_mtime < time.time() - 3600:
                    _remove(path)
                else:
                    files.append((facts.st_mtime, facts.st_size, path))
        total = size_bytes + sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._limit_bytes:
                break
            _remove(path)
            self._tokens.pop(path, None)
            total -= size


def common_length(a: list[int], b: list[int]) -> int:
    """Return the number of equal first tokens of two texts.

    >>> common_length([1, 2, 3], [1, 2, 4, 5]), common_length([1], []), common_length([7, 8], [7, 8, 9])
    (2, 0, 2)
    """
    length = min(len(a), len(b))
    if a[:length] == b[:length]:  # the common case, compared in C
        return length
    different = np.asarray(a[:length]) != np.asarray(b[:length])
    return int(different.argmax())


def _content(tokens: list[int], cache: Array) -> bytes:
    kind = next(kind for kind, dtype in DTYPES.items() if dtype == cache.dtype)
    values = np.ascontiguousarray(cache).tobytes()
    body = HEADER.pack(len(tokens), kind, *cache.shape) + np.array(tokens, np.int32).tobytes() + values
    return START.pack(MAGIC, zlib.crc32(body)) + body


def _tokens_of(path: Path) -> list[int] | None:
    """Return the tokens of a file, from its beginning; None if it can't be one."""
    try:
        head = ownership.read_own(path, HEAD_BYTES)
        magic, _ = START.unpack_from(head)
        count, _, *shape = HEADER.unpack_from(head, START.size)
        if magic != MAGIC or count != shape[2] or count > 1 << 20:
            return None
        return _tokens_in(ownership.read_own(path, HEAD_BYTES + 4 * int(count)), int(count))
    except (OSError, ValueError, struct.error):
        return None


def _tokens_in(content: bytes, count: int) -> list[int]:
    return [int(token) for token in np.frombuffer(content, np.int32, count, HEAD_BYTES)]


def _parsed(content: bytes) -> tuple[list[int], Array]:
    """Decode the content of a file: its tokens and values. Raises ValueError if it is damaged."""
    try:
        magic, crc = START.unpack_from(content)
        count, kind, *shape = HEADER.unpack_from(content, START.size)
    except struct.error:
        raise ValueError from None
    if magic != MAGIC or kind not in DTYPES or zlib.crc32(memoryview(content)[START.size :]) != crc:
        raise ValueError
    start = HEAD_BYTES + 4 * int(count)
    values: Array = np.frombuffer(content, DTYPES[kind], -1, start)
    return _tokens_in(content, int(count)), values.reshape(shape)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
