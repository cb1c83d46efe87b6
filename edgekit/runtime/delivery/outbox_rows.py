"""What an outbox holds: rows as an app puts them in, as a table has them, as a damaged table gives them."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from dataclasses import dataclass
from typing import Any

PRIORITIES = {"result": 2, "metric": 1, "log": 0}
"""What there is too little room for goes in this order, the lowest first."""
ROW_BYTES = 100
"""What a row takes besides its key and its body."""
GAP_ROWS = 100_000
"""Rows that are looked for one by one between the readable ends of a damaged file."""


COLUMNS = "seq, key, kind, made_s, made_unix_s, tries, quarantined, why, crc, body"
SIZE = f"{ROW_BYTES} + length(CAST(key AS BLOB)) + length(body)"


@dataclass(frozen=True)
class Limits:
    """What an outbox may hold: on disk up to three times ``size_bytes`` and twice ``memory_bytes``.

    Attributes:
        size_bytes: Of all rows, keys and bodies; beyond it the least important, then the oldest, are dropped.
        age_s: Rows older than that are dropped.
        row_bytes: The largest body.
        tries: A row that a backend refuses so often is quarantined.
        memory_bytes: Of rows that wait for the disk.
    """

    size_bytes: int = 64 << 20
    age_s: float = 7 * 86400.0
    row_bytes: int = 1 << 20
    tries: int = 5
    memory_bytes: int = 8 << 20


@dataclass(frozen=True)
class Parcel:
    """One row: the same key is the same row, however often it is delivered.

    Attributes:
        key: Unique; a backend drops a second one of the same key.
        kind: ``result``, ``metric`` or ``log``.
        body: What the app put in.
        made_unix_s: When, on the device's clock, which may have been wrong.
        tries: How often a backend refused it.
        why: What it said.
    """

    key: str
    kind: str
    body: bytes
    made_unix_s: float
    tries: int = 0
    why: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.key.encode()) + len(self.body) + ROW_BYTES


def crc_of(parcel: Parcel) -> int:
    """What a row is checked by: SQLite has no checksums."""
    return zlib.crc32(parcel.body, zlib.crc32(f"{parcel.kind}\0{parcel.key}".encode()))


def parcel_of(row: tuple[Any, ...]) -> Parcel | None:
    """A row as it was put in; None where it is not what was put in."""
    _, key, kind, _, made_unix_s, tries, _, why, crc, body = row
    if not (isinstance(tries, int) and isinstance(made_unix_s, float)):
        return None
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(body, bytes)):
        return None
    parcel = Parcel(key, kind, body, made_unix_s, tries, str(why))
    return parcel if crc_of(parcel) == crc else None


def salvaged(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """Every row that can be read: from both ends, and one by one what lies between."""
    rows = readable(connection, f"SELECT {COLUMNS} FROM rows ORDER BY seq")
    back = readable(connection, f"SELECT {COLUMNS} FROM rows ORDER BY seq DESC")
    found = {row[0]: row for row in (*rows, *back) if isinstance(row[0], int)}
    if found and rows and back:
        first, last = rows[-1][0], back[-1][0]
        if isinstance(first, int) and isinstance(last, int):
            for seq in range(first + 1, min(last, first + GAP_ROWS)):
                for row in readable(connection, f"SELECT {COLUMNS} FROM rows WHERE seq = {seq}"):
                    found[seq] = row
    return [found[seq] for seq in sorted(found)]


def readable(connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query up to the first that cannot be read."""
    rows: list[tuple[Any, ...]] = []
    with contextlib.suppress(sqlite3.Error):
        for row in connection.execute(query):
            rows.append(row)
    return rows
