"""Recover what can be read of a damaged outbox file, without writing to it or trusting its schema.

SQLite ends a write-ahead log at the first frame with a wrong checksum. After a power cut such frames are
writes that were not flushed; if a bit of the log was lost later they are acknowledged rows. So the rows are
read twice, without these frames and with them. A row that was delivered meanwhile may reappear, and is sent
once more.

https://sqlite.org/fileformat2.html describes the file's header (1.3) and the log (4).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.runtime.outbox.integrity_check import (
    COUNTS,
    checked_size_bytes,
    connected,
    plausible,
    readable,
    schema_is_ours,
)
from edgekit.runtime.outbox.rows import COLUMNS, Parcel, parcel_of

GAP_ROWS = 100_000
"""Rows that are read one by one between the readable ends of a damaged file."""
PAGE_BYTES = 4096
_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = 0x377F0682


class Log(NamedTuple):
    """The frames of a write-ahead log: page numbers and file offsets.

    Attributes:
        valid: Part that SQLite reads: up to the last commit before the first wrong checksum.
        remainder: Rest, if it contains a commit; else empty.
    """

    valid: Sequence[tuple[int, int]] = ()
    remainder: Sequence[tuple[int, int]] = ()


class Rescue(NamedTuple):
    """The recovered data.

    Attributes:
        parcels: The rows with correct checksums, the oldest first.
        damaged: Number of corrupt rows.
        counts: Counts by name, without the clock.
    """

    parcels: list[Parcel]
    damaged: int
    counts: dict[str, float]


def log_of(path: Path) -> Log:
    """Return the log next to a file.

    Raises: OSError: it cannot be read.
    """
    log = path.with_name(path.name + "-wal")
    if not log.is_file():  # a pipe would block
        return Log()
    with open(log, "rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return Log()
        magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack(head)
        order = ">" if magic & 1 else "<"
        sums = _sums(head[:24], order, (0, 0))
        whole = magic | 1 == _MAGIC | 1 and page_bytes == PAGE_BYTES and sums == (first, second)
        valid: list[tuple[int, int]] = []
        after: list[tuple[int, int]] = []
        committed, commits_after = 0, 0
        while len(frame := file.read(_FRAME.size + PAGE_BYTES)) == _FRAME.size + PAGE_BYTES:
            number, commit, salt, salt2, *expected = _FRAME.unpack(frame[: _FRAME.size])
            if not whole and not after:
                salts = [salt, salt2]  # in case the header is damaged
            offset = file.tell() - PAGE_BYTES
            if not after and whole:
                sums = _sums(frame[_FRAME.size :], order, _sums(frame[:8], order, sums))
                if [salt, salt2, *sums] == [*salts, *expected]:
                    valid.append((number, offset))
                    committed = len(valid) if commit else committed
                    continue
            # One of the two salts may be damaged; frames of an earlier use of the log differ in both.
            if salt == salts[0] or salt2 == salts[1]:
                after.append((number, offset))
                commits_after += commit != 0
            elif not after:
                break
    trailing = [*valid[committed:], *after] if commits_after else []
    return Log(valid[:committed], trailing)


def _sums(content: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """SQLite's running log checksum."""
    first, second = start
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def header_fault(path: Path) -> str:
    """Return a header fault that SQLite does not report, but which makes the file read-only; or empty."""
    if not path.is_file() or path.stat().st_size < PAGE_BYTES:
        return ""
    with open(path, "rb") as file:
        versions = file.read(20)[18:]
    return "" if versions in (b"\1\1", b"\2\2") else f"its header has the versions {versions!r}"


def rescued(path: Path, copy: Path, first_page: bytes) -> Rescue:
    """Read what can be read.

    Args:
        path: The damaged file.
        copy: Path for a working copy; the caller removes it and the files next to it.
        first_page: First page of an empty outbox: its schema replaces a damaged one.

    Raises: OSError: there is no space for the copy.
    """
    log = log_of(path)
    shutil.copyfile(path, copy)
    _apply(log.valid, path, copy)
    view = _view(copy, first_page)
    if not log.remainder:
        return Rescue([*view.parcels.values()], len(view.broken - view.parcels.keys()), view.counts)
    _apply(log.remainder, path, copy)
    later_view = _view(copy, first_page)
    # If the later view is consistent, a row missing in it was delivered, and is not sent again.
    selected = later_view.broken if later_view.consistent else view.parcels.keys()
    parcels = {seq: parcel for seq, parcel in view.parcels.items() if seq in selected} | later_view.parcels
    broken = later_view.broken if later_view.consistent else later_view.broken | view.broken
    once = {parcels[seq].key: parcels[seq] for seq in sorted(parcels)}
    return Rescue([*once.values()], len(broken - parcels.keys()), view.counts | later_view.counts)


class _View(NamedTuple):
    parcels: dict[int, Parcel]
    broken: set[int]
    counts: dict[str, float]
    consistent: bool


def _view(copy: Path, first_page: bytes) -> _View:
    parcels: dict[int, Parcel] = {}
    broken: set[int] = set()
    counts: dict[str, float] = {}
    with contextlib.closing(_opened(copy, first_page)) as connection:
        consistent = False
        with contextlib.suppress(sqlite3.Error, UnicodeError):
            checked_size_bytes(connection)
            consistent = True
        for row in salvaged(connection):
            if isinstance(row[0], int) and row[0] not in parcels:
                parcel = parcel_of(row)
                if parcel is None:
                    broken.add(row[0])
                else:
                    parcels[row[0]] = parcel
        for count in readable(connection, "SELECT name, value FROM counts"):
            if count[0] in COUNTS and plausible(*count):
                counts[count[0]] = count[1]
    return _View({seq: parcels[seq] for seq in sorted(parcels)}, broken, counts, consistent)


def _apply(frames: Sequence[tuple[int, int]], path: Path, copy: Path) -> None:
    if not frames:
        return
    with open(path.with_name(path.name + "-wal"), "rb") as log, open(copy, "r+b") as file:
        pages = os.fstat(file.fileno()).st_size // PAGE_BYTES + len(frames)
        for number, offset in frames:
            if 1 <= number <= pages:  # a damaged number could make the file huge
                log.seek(offset)
                file.seek((number - 1) * PAGE_BYTES)
                file.write(log.read(PAGE_BYTES))


def _opened(copy: Path, first_page: bytes) -> sqlite3.Connection:
    """Open the copy, with its own schema if that is an outbox's, else with the standard one.

    The root pages of the tables are the same in every outbox: tables are created in one order and never
    dropped.
    """
    size_bytes = os.stat(copy).st_size
    connection = connected(copy, size_bytes)
    with contextlib.suppress(sqlite3.Error, UnicodeError):
        if not header_fault(copy) and schema_is_ours(connection):
            return connection
    connection.close()
    with open(copy, "r+b") as file:
        head = bytearray(first_page)
        head[18:20] = b"\1\1"  # no log next to the copy
        head[28:32] = struct.pack(">I", size_bytes // PAGE_BYTES)
        file.write(head)
    return connected(copy, size_bytes)


def salvaged(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield every readable row: from both ends, then one by one in between. Some rows appear twice."""
    ends: list[int | None] = []
    for order in ("", " DESC"):
        last = None
        for row in readable(connection, f"SELECT {COLUMNS} FROM rows ORDER BY seq{order}"):
            last = row[0]
            yield row
        ends.append(last)
    first, last = ends
    if first is None and last is None:
        return
    start = first + 1 if first is not None else max(1, (last or 0) - GAP_ROWS)
    for seq in range(start, min(last if last is not None else start + GAP_ROWS, start + GAP_ROWS)):
        yield from readable(connection, f"SELECT {COLUMNS} FROM rows WHERE seq = {seq}")


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
