"""A persistent queue of results and metrics for a backend that is not always reachable.

    outbox = Outbox("outbox", HttpSink("https://backend.example/rows"))
    receipt = outbox.put(b'{"people": 3}')      # returns at once
    receipt.wait()                              # True: stored, and it survives a power cut

Rows are committed to disk in groups: one flush for all rows of 50 ms. Stored rows are delivered at least
once, each time under the same idempotency key, so that the backend can drop repetitions; the most important
kind goes first. Rows are only removed by rules, and counted: too old, no room and less important than the
rest, or refused so often that they are quarantined.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from edgekit.errors import UsageError
from edgekit.runtime.outbox.rows import KEY, PRIORITIES, OutboxLimits, Parcel, Receipt, refuse_fork
from edgekit.runtime.outbox.sinks import RowRefusedError, Sink, SinkDownError
from edgekit.runtime.outbox.sqlite_store import OutboxStore
from edgekit.system.closing import Closing
from edgekit.system.interrupts import Background, pass_on

T = TypeVar("T")

COMMIT_S = 0.05
"""Group commit interval: rows within it share one flush, because flushes wear flash and drain batteries."""
BATCH_ROWS, BATCH_BYTES = 64, 1 << 20
"""Deliveries between two flushes; a kill may cause these to be delivered twice."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
"""Exponential backoff while the backend is down, doubled each time, half of it random, so that a fleet does
not reconnect in the same second."""
TAKEN_LATE = 8
"""Limit of rows handed in and not yet processed; they do not count as ``memory_bytes``."""
DISK_WAIT_S, LONGEST_DISK_WAIT_S = 0.05, 5.0
CLOSE_S, LAST_TRIES = 5.0, 2
"""Longest time of ``close`` for the disk, and for the sink; failed rounds after which it gives up."""


@dataclass(frozen=True)
class Delivery:
    """The result of one delivery round.

    Attributes:
        down: Why the round was stopped; empty if it was completed.
        retry_after_s: When the sink wants to be retried, if it said so.
    """

    delivered: int = 0
    refused: int = 0
    down: str = ""
    retry_after_s: float | None = None


class Outbox(Closing):
    """A folder of rows, with a thread that accepts them, one that stores them and, with a sink, one that
    delivers.

    Thread-safe, also under a Ctrl-C at any moment: a caller's thread hands a row in by a single C call, and
    condition variables are used only by the outbox's own threads, where no interrupt is raised. Not to be
    used in a process forked from the one that opened it.

    Args:
        folder: Its own; one process at a time.
        sink: The destination; closed with the outbox. None means the app calls ``deliver``.
        close_s: Longest time in which ``close`` delivers stored rows; the rest stays for the next process.

    Raises:
        UsageError: the folder cannot be used, or another process has it open.
    """

    def __init__(
        self,
        folder: str | Path,
        sink: Sink | None = None,
        *,
        limits: OutboxLimits = OutboxLimits(),  # noqa: B008  (frozen)
        commit_s: float = COMMIT_S,
        close_s: float = CLOSE_S,
    ) -> None:
        self._limits, self._commit_s, self._sink = limits, commit_s, sink
        self._pid, self._trouble = os.getpid(), ""
        self._close_s, self._end_s = close_s, math.inf
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._arrived = threading.Condition(threading.Lock())
        self._pending: dict[int, deque[tuple[Parcel, Receipt]]] = {n: deque() for n in range(3)}
        self._under_way: list[Receipt] = []
        self._pending_bytes = self._lost = self._disk_errors = 0
        self._broken = self._shut = self._closed = self._deaf = False
        self._closing, self._stored = threading.Event(), threading.Event()
        self._delivered: list[Parcel] = []
        self._refused: list[tuple[Parcel, str]] = []
        self._doubted: dict[str, tuple[Parcel, str]] = {}
        self._origin, self._numbers = os.urandom(8).hex(), count(1)
        jobs: list[Callable[[], None]] = [self._accept_rows, self._store_rows]
        if sink is not None:
            self._stored.set()  # rows of an earlier process
            jobs.append(self._deliver_rows)
        self._threads: list[Background] = []
        try:
            self._store = OutboxStore(Path(folder), limits)
            for job in jobs:
                self._threads.append(Background(job, "edgekit-outbox"))
        except BaseException:  # e.g. Ctrl-C: release the folder
            self._shut = True
            self._inbox.put(self._end)
            if hasattr(self, "_store"):
                self._store.close()
            raise

    # --- putting -----------------------------------------------------------------------------------------

    def put(self, body: bytes, kind: str = "result", key: str | None = None) -> Receipt:
        """Hand in one row; returns at once.

        Args:
            body: At most ``limits.row_bytes``.
            kind: ``result``, ``metric`` or ``log``: the order of delivery, and in reverse of dropping.
            key: An idempotency key; rows with the same key are the same row, and the first body is kept.

        Raises:
            UsageError: an argument is invalid, the outbox is closed, or it belongs to another process.
        """
        refuse_fork(self._pid)
        if not isinstance(body, bytes) or len(body) > self._limits.row_bytes:
            actual = f"{len(body)} bytes" if isinstance(body, bytes) else f"a {type(body).__name__}"
            raise UsageError(f"the body is {actual}; expected at most {self._limits.row_bytes} bytes")
        if kind not in PRIORITIES:
            raise UsageError(f"unknown kind {kind!r}; available: {', '.join(PRIORITIES)}")
        if key is None:
            key = f"{self._origin}-{next(self._numbers)}"
        elif not KEY.fullmatch(key):
            raise UsageError(f"invalid key {key!r}; expected 1 to 128 letters, digits, '-', '_', '.'")
        parcel, receipt = Parcel(key, kind, body, time.time()), Receipt(key)
        if not self._closed:
            self._inbox.put(partial(self._take, parcel, receipt))  # atomic: no interrupt can come between
            if self._inbox.qsize() > TAKEN_LATE:
                time.sleep(0)  # let the accepting thread catch up, and drop rows above the limit
        if self._deaf or self._closed:
            raise UsageError("the outbox is closed; open a new one to put rows in")
        return receipt

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all rows put so far are stored or dropped. False after the timeout."""
        refuse_fork(self._pid)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        noted, waited = Receipt(""), list[Receipt]()
        self._inbox.put(partial(self._note, noted, waited))
        while not noted.wait(0.1 if end_s is None else min(0.1, end_s - time.monotonic())):
            if self._deaf:
                return not any(self._pending.values())
            if end_s is not None and time.monotonic() >= end_s:
                return False
        for receipt in waited:
            receipt.wait(None if end_s is None else max(0.0, end_s - time.monotonic()))
        return all(receipt.state != "waiting" for receipt in waited)

    def _accept_rows(self) -> None:
        """Process the rows that callers put in, in order, without waiting for the disk."""
        while not self._deaf:
            self._inbox.get()()

    def _take(self, parcel: Parcel, receipt: Receipt) -> None:
        with self._arrived:
            self._pending_bytes += parcel.size_bytes
            self._pending[PRIORITIES[parcel.kind]].append((parcel, receipt))
            self._free_memory()
            self._arrived.notify()

    def _note(self, noted: Receipt, waited: list[Receipt]) -> None:
        with self._arrived:
            waited += [receipt for rows in self._pending.values() for _, receipt in rows] + self._under_way
        noted.resolve("stored")

    def _end(self) -> None:
        with contextlib.suppress(Empty):
            while True:  # rows that other threads put during the close
                self._inbox.get_nowait()()
        self._deaf = True
        with self._arrived:
            self._closing.set()
            self._stored.set()
            self._arrived.notify_all()

    def _free_memory(self) -> None:
        for rows in self._pending.values():
            while rows and self._pending_bytes > self._limits.memory_bytes:
                parcel, receipt = rows.popleft()
                self._pending_bytes -= parcel.size_bytes
                self._lost += 1
                receipt.resolve("dropped")

    def _store_rows(self) -> None:
        wait_s = DISK_WAIT_S
        while True:
            with self._arrived:
                while not any(self._pending.values()) and not self._closing.is_set():
                    self._arrived.wait()
                if not any(self._pending.values()):
                    return
            self._closing.wait(self._commit_s)
            if self._store_pending():
                wait_s = DISK_WAIT_S
            elif self._closing.is_set():
                return  # receipts report it to the app
            else:
                self._closing.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_DISK_WAIT_S)

    def _store_pending(self) -> bool:
        with self._arrived:
            rows = [row for name in self._pending for row in self._pending[name]]
            for waiting in self._pending.values():
                waiting.clear()
            self._under_way = [receipt for _, receipt in rows]
            # What arrives meanwhile has the whole limit: it may be worth more than all that is under way.
            size_bytes, self._pending_bytes = self._pending_bytes, 0
            lost, self._lost = self._lost, 0
        try:
            dropped = self._use(lambda store: store.append([parcel for parcel, _ in rows], lost))
        except (OSError, sqlite3.Error):
            with self._arrived:
                for parcel, receipt in reversed(rows):
                    self._pending[PRIORITIES[parcel.kind]].appendleft((parcel, receipt))
                self._under_way = []
                self._lost += lost
                self._pending_bytes += size_bytes
                self._free_memory()
            return False
        with self._arrived:
            self._under_way = []
        for parcel, receipt in rows:
            receipt.resolve("dropped" if parcel.key in dropped else "stored")
        self._stored.set()
        return True

    # --- delivering --------------------------------------------------------------------------------------

    def deliver(self, sink: Sink) -> Delivery:
        """Deliver a round of at most 64 rows, in the caller's thread.

        A row that fails for an unknown reason is put aside while others are tried. Once another one succeeds,
        the failed row is at fault and counts as refused, so an outage quarantines nothing.

        Raises:
            UsageError: it belongs to another process.
        """
        refuse_fork(self._pid)
        with self._sending:
            try:
                return self._deliver(sink)
            except (OSError, sqlite3.Error) as problem:
                return Delivery(down=f"the disk of the outbox: {problem}")

    def _deliver(self, sink: Sink) -> Delivery:
        self._record_deliveries()
        rows = self._use(lambda store: store.waiting(BATCH_ROWS, BATCH_BYTES, self._doubted))
        if not rows and self._doubted:
            rows = self._use(lambda store: store.waiting(1, BATCH_BYTES))
        down, retry_after_s = "", None
        for parcel in rows:
            try:
                sink.send(parcel)
            except RowRefusedError as problem:
                self._refused.append((parcel, str(problem)))
            except SinkDownError as problem:
                down, retry_after_s = str(problem), problem.retry_after_s
                break
            except Exception as problem:  # a sink may throw anything
                pass_on(problem)
                down = f"{type(problem).__name__}: {problem}"
                self._doubted[parcel.key] = (replace(parcel, body=b""), down)
                break
            else:
                self._delivered.append(parcel)
                self._doubted.pop(parcel.key, None)
                self._refused += self._doubted.values()
                self._doubted = {}
            if self._closed and time.monotonic() >= self._end_s:
                break
        delivery = Delivery(len(self._delivered), len(self._refused), down, retry_after_s)
        self._record_deliveries()
        return delivery

    def _record_deliveries(self) -> None:
        """Record the results of deliveries; if the disk fails, nothing is sent until they are recorded."""
        if self._delivered or self._refused:
            self._use(lambda store: store.record_results(self._delivered, self._refused))
            self._delivered, self._refused = [], []

    def _deliver_rows(self) -> None:
        assert self._sink is not None
        wait_s = FIRST_WAIT_S
        while not self._closing.is_set():
            self._stored.clear()
            delivery = self.deliver(self._sink)
            if delivery.down:
                least_s = min(delivery.retry_after_s or 0.0, LONGEST_WAIT_S)
                self._closing.wait(max(least_s, wait_s * random.uniform(0.5, 1.0)))
                wait_s = FIRST_WAIT_S if delivery.delivered else min(2 * wait_s, LONGEST_WAIT_S)
            else:
                wait_s = FIRST_WAIT_S
                if not (delivery.delivered or delivery.refused):
                    self._stored.wait()
        self._threads[1].join(max(0.0, self._end_s - time.monotonic()))  # it stores the last rows
        delivery, downs = Delivery(1), 0
        while downs < LAST_TRIES and (delivery.delivered or delivery.refused or delivery.down):
            if time.monotonic() >= self._end_s:
                return
            delivery = self.deliver(self._sink)
            downs = downs + 1 if delivery.down else 0

    # --- inspection --------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Return the waiting rows and bytes, and the counts of all others since the folder was created.

        Keys: ``waiting``, ``size_bytes``, ``delivered``, ``dropped_age``, ``dropped_room``,
        ``dropped_memory``, ``quarantined``, ``damaged``, ``rebuilt``; of this process only: ``pending``, not
        on disk yet, and ``disk_errors``.

        Raises: OSError, sqlite3.Error: the disk fails.
        """
        totals = self._use(lambda store: store.counts())
        pending = sum(map(len, self._pending.values())) + len(self._under_way) + self._inbox.qsize()
        totals["pending"] = pending
        totals["dropped_memory"] += self._lost
        return totals | {"disk_errors": self._disk_errors}

    @property
    def trouble(self) -> str:
        """Return the last disk error; empty if the disk works."""
        return self._trouble

    def quarantined(self) -> list[Parcel]:
        """Return the rows that the backend refused too often, with its reasons."""
        return self._use(lambda store: store.quarantined())

    def release(self) -> int:
        """Queue the quarantined rows again; returns how many."""
        released = self._use(lambda store: store.release())
        self._inbox.put(self._stored.set)
        return released

    def close(self) -> None:
        """Store pending rows, deliver what the sink takes within ``close_s``, and stop. Closing twice is
        fine; in a forked process nothing is done."""
        if os.getpid() != self._pid:
            return
        self._end_s = min(self._end_s, time.monotonic() + self._close_s)
        self._closed = True
        self._inbox.put(self._end)
        for thread in self._threads:
            left_s = CLOSE_S if thread in self._threads[:2] else self._end_s - time.monotonic()
            thread.join(max(0.0, left_s))
        with self._lock:
            self._shut = True
            self._store.close()
        if self._sink is not None:
            self._sink.close()

    def _use(self, act: Callable[[OutboxStore], T]) -> T:
        """Return the store, reopened if it failed before."""
        refuse_fork(self._pid)
        with self._lock:
            if self._shut:
                raise OSError("the outbox is closed")
            broken, self._broken = self._broken, True  # and remains so if a Ctrl-C interrupts this
            try:
                if broken:
                    self._store.reopen()
                done = act(self._store)
            except (OSError, sqlite3.Error) as problem:
                self._disk_errors += 1
                self._trouble = str(problem)
                raise
            self._broken, self._trouble = False, ""
            return done
