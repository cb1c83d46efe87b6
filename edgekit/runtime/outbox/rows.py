"""What an outbox holds: rows as an app puts them in, and as a table has them."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from typing import Any

PRIORITIES = {"result": 2, "metric": 1, "log": 0}
"""What there is too little room for goes in this order, the lowest first."""
ROW_BYTES = 100
"""What a row takes besides its key and its body."""
KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
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
    """A row as it was put in; None where it is not what was put in. What a backend said of it may be lost."""
    _, key, kind, _, made_unix_s, tries, _, why, crc, body = row
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(body, bytes)):
        return None
    if kind not in PRIORITIES or not KEY.fullmatch(key):
        return None
    made_unix_s = made_unix_s if isinstance(made_unix_s, float) and math.isfinite(made_unix_s) else 0.0
    tries = tries if isinstance(tries, int) and tries >= 0 else 0
    parcel = Parcel(key, kind, body, made_unix_s, tries, why if isinstance(why, str) else "")
    return parcel if crc_of(parcel) == crc else None
