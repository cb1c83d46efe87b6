"""The rows of an outbox: as an app puts them in, and as the table stores them."""

from __future__ import annotations

import math
import re
import zlib
from dataclasses import dataclass
from typing import Any

PRIORITIES = {"result": 2, "metric": 1, "log": 0}
"""If there is too little room, rows are dropped in this order, the lowest first."""
ROW_BYTES = 100
"""Overhead of a row besides its key and body."""
KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
COLUMNS = "seq, key, kind, made_s, made_unix_s, tries, quarantined, why, crc, body"
SIZE = f"{ROW_BYTES} + length(CAST(key AS BLOB)) + length(body)"


@dataclass(frozen=True)
class OutboxLimits:
    """Limits of an outbox; on disk it takes up to three times ``size_bytes`` plus twice ``memory_bytes``.

    Attributes:
        size_bytes: Maximum size of all rows, keys and bodies; above it the least important, then the oldest,
            are dropped.
        age_s: Older rows are dropped.
        tries: Refusals by the backend after which a row is quarantined.
        memory_bytes: Maximum size of rows waiting for the disk, beside as many that are being written.
    """

    size_bytes: int = 64 << 20
    age_s: float = 7 * 86400.0
    row_bytes: int = 1 << 20
    tries: int = 5
    memory_bytes: int = 8 << 20


@dataclass(frozen=True)
class Parcel:
    """One row, identified by its key, however often it is delivered.

    Attributes:
        key: Unique; a backend drops repetitions by it.
        kind: ``result``, ``metric`` or ``log``.
        made_unix_s: When, on the device's clock, which may have been wrong.
        tries: Number of times that a backend refused it.
    """

    key: str
    kind: str
    body: bytes
    made_unix_s: float
    tries: int = 0
    reason: str = ""

    @property
    def size_bytes(self) -> int:
        return len(self.key.encode()) + len(self.body) + ROW_BYTES


def crc_of(parcel: Parcel) -> int:
    """Return a row's checksum; SQLite has none."""
    return zlib.crc32(parcel.body, zlib.crc32(f"{parcel.kind}\0{parcel.key}".encode()))


def parcel_of(row: tuple[Any, ...]) -> Parcel | None:
    """Return a row as it was put; None if it is corrupt. A lost reason of the backend is tolerated."""
    _, key, kind, _, made_unix_s, tries, _, reason, crc, body = row
    if not (isinstance(key, str) and isinstance(kind, str) and isinstance(body, bytes)):
        return None
    if kind not in PRIORITIES or not KEY.fullmatch(key):
        return None
    made_unix_s = made_unix_s if isinstance(made_unix_s, float) and math.isfinite(made_unix_s) else 0.0
    tries = tries if isinstance(tries, int) and tries >= 0 else 0
    parcel = Parcel(key, kind, body, made_unix_s, tries, reason if isinstance(reason, str) else "")
    return parcel if crc_of(parcel) == crc else None
