"""The rows of an outbox: as an app puts them in, and as the table stores them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import zlib
from dataclasses import dataclass
from typing import Any

from edgekit.errors import UsageError

PRIORITIES = {"result": 2, "metric": 1, "log": 0}
"""If there is too little room, rows are dropped in this order, the lowest first."""
DROPPED = ("age", "room", "memory")
"""Rules by which rows are dropped (docs/outbox.md); the counts are named ``dropped_`` and the rule."""
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


def refuse_fork(pid: int) -> None:
    """Check that this process opened the outbox. Raises UsageError if it was forked from the one that did."""
    if os.getpid() != pid:
        raise UsageError(
            f"the outbox was opened by process {pid}, and this is {os.getpid()}, forked from it, where "
            "nothing is stored or delivered; open one here, with a folder of its own"
        )


class Receipt:
    """The state of one row: ``waiting``, ``stored``, or ``dropped`` before it was stored."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = "waiting"
        self._pid = os.getpid()
        self._waiters: list[threading.Lock] = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the disk. True: the row is stored; False: it was dropped, or the timeout is over.

        Raises:
            UsageError: it would block in a forked process, where no thread stores rows.
        """
        if self.state == "waiting":
            refuse_fork(self._pid)
            # One lock for each waiting thread: an Event's own could stay locked after a Ctrl-C, and block the
            # thread that resolves the receipt forever.
            waiter = threading.Lock()
            waiter.acquire()
            self._waiters.append(waiter)
            try:
                if self.state == "waiting":
                    longest_s = threading.TIMEOUT_MAX
                    waiter.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), longest_s))
            finally:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
        return self.state == "stored"

    def resolve(self, state: str) -> None:
        """Set the final state and wake the waiting threads. Only the outbox calls it."""
        self.state = state
        while self._waiters:
            with contextlib.suppress(IndexError):  # the waiting thread has timed out
                self._waiters.pop().release()
