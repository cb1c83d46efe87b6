"""Results and metrics on their way to a backend that is not always there.

    outbox = Outbox("outbox", HttpSink("https://backend.example/rows"))
    receipt = outbox.put(b'{"people": 3}')      # returns at once
    receipt.wait()                              # True: stored, and it survives a power cut

What is put in is stored on disk, in groups: one flush for all rows of 50 ms. What is stored is delivered at
least once, each time under the same key, so that the backend can drop a repetition; the most important kind
first. Rows go only by rules, and are counted: too old, no room and less important than the rest, or refused
so often that they are quarantined.
"""

from __future__ import annotations

import contextlib
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
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from edgekit.errors import UsageError
from edgekit.runtime.outbox.fork import stay_in
from edgekit.runtime.outbox.receipt import Receipt
from edgekit.runtime.outbox.rows import KEY, PRIORITIES, Limits, Parcel
from edgekit.runtime.outbox.sinks import RowRefusedError, SinkDownError
from edgekit.runtime.outbox.sqlite_store import OutboxStore

if TYPE_CHECKING:
    from edgekit.runtime.outbox.sinks import Sink

T = TypeVar("T")

COMMIT_S = 0.05
"""Rows that arrive within it share one flush: a flash cell wears by flushes, and so does a battery."""
BATCH_ROWS, BATCH_BYTES = 64, 1 << 20
"""Delivered between two flushes; what a kill may deliver twice."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
"""Between two tries of a backend that takes nothing, doubled each time; half of it drawn by chance, so that
a fleet does not come back in one second."""
TAKEN_LATE = 8
"""Rows that are handed in and not taken yet; they are not among ``memory_bytes``."""
DISK_WAIT_S, LONGEST_DISK_WAIT_S = 0.05, 5.0


@dataclass(frozen=True)
class Delivery:
    """What one round of delivering did.

    Attributes:
        delivered: Rows that the sink has.
        refused: Rows that it refused.
        down: Why it stopped; empty where it came to the end of the round.
        retry_after_s: When the sink wants to be asked again, if it said so.
    """

    delivered: int = 0
    refused: int = 0
    down: str = ""
    retry_after_s: float | None = None


class Outbox:
    """A folder of rows, a thread that takes them, one that stores and, with a sink, one that delivers.

    Safe between threads, and under a Ctrl-C at any moment: what a caller's thread hands in is one step of C,
    and the conditions that threads wait on are only used by the outbox's own, in which no interrupt is
    raised. Not to be used in a process that is forked from the one that opened it.

    Args:
        folder: Its own; one process at a time.
        sink: Where to; closed with the outbox. None: ``deliver`` is called by the app.
        limits: What it may hold.
        commit_s: How long rows are gathered before they are stored together.

    Raises:
        UsageError: the folder cannot be used, or another process has it open.
    """

    def __init__(
        self,
        folder: str | Path,
        sink: Sink | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008  (frozen)
        commit_s: float = COMMIT_S,
    ) -> None:
        self._limits, self._commit_s, self._sink = limits, commit_s, sink
        self._pid = os.getpid()
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._arrived = threading.Condition(threading.Lock())
        self._pending: dict[int, deque[tuple[Parcel, Receipt]]] = {n: deque() for n in range(3)}
        self._under_way: list[Receipt] = []
        self._pending_bytes = self._lost = self._disk_errors = 0
        self._trouble = ""
        self._broken = self._shut = self._closed = self._deaf = False
        self._closing, self._stored = threading.Event(), threading.Event()
        self._delivered: list[Parcel] = []
        self._refused: list[tuple[Parcel, str]] = []
        self._doubted: dict[str, tuple[Parcel, str]] = {}
        self._origin, self._numbers = os.urandom(8).hex(), count(1)
        jobs: list[Callable[[], None]] = [self._keep_taking, self._keep_storing]
        if sink is not None:
            self._stored.set()  # what an earlier process left
            jobs.append(self._keep_delivering)
        self._threads = [threading.Thread(target=job, name="edgekit-outbox", daemon=True) for job in jobs]
        self._store = OutboxStore(Path(folder), limits)
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # a Ctrl-C; the folder is free again
            self._shut = True
            self._inbox.put(self._end)
            self._store.close()
            raise

    # --- putting in --------------------------------------------------------------------------------------

    def put(self, body: bytes, kind: str = "result", key: str | None = None) -> Receipt:
        """Hand in one row; returns at once.

        Args:
            body: At most ``limits.row_bytes``.
            kind: ``result``, ``metric`` or ``log``: what goes first, and is dropped last.
            key: Where the app has one; the same key is the same row, and the first body counts.

        Raises:
            UsageError: one of them does not fit, the outbox is closed, or it is another process's.
        """
        stay_in(self._pid)
        if not isinstance(body, bytes) or len(body) > self._limits.row_bytes:
            found = f"{len(body)} bytes" if isinstance(body, bytes) else f"a {type(body).__name__}"
            raise UsageError(f"the body is {found}; bytes, at most {self._limits.row_bytes}, are expected")
        if kind not in PRIORITIES:
            raise UsageError(f"kind {kind!r} is unknown; there are {', '.join(PRIORITIES)}")
        if key is None:
            key = f"{self._origin}-{next(self._numbers)}"
        elif not KEY.fullmatch(key):
            raise UsageError(
                f"key {key!r} does not fit: 1 to 128 letters, digits, '-', '_', '.' are expected"
            )
        parcel, receipt = Parcel(key, kind, body, time.time()), Receipt(key)
        if not self._closed:
            self._inbox.put(partial(self._take, parcel, receipt))  # one step, that nothing comes between
            if self._inbox.qsize() > TAKEN_LATE:
                time.sleep(0)  # lets the thread that takes them come to it, and drop what is too much
        if self._deaf or self._closed:
            raise UsageError("the outbox is closed; open a new one to put rows in")
        return receipt

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until all that was put in so far is stored or dropped. False: it takes longer."""
        stay_in(self._pid)
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

    def _keep_taking(self) -> None:
        """What callers hand in is done here, in this order; none of it waits for a disk."""
        while not self._deaf:
            self._inbox.get()()

    def _take(self, parcel: Parcel, receipt: Receipt) -> None:
        with self._arrived:
            self._pending_bytes += parcel.size_bytes
            self._pending[PRIORITIES[parcel.kind]].append((parcel, receipt))
            while self._pending_bytes > self._limits.memory_bytes and self._drop_pending():
                pass
            self._arrived.notify()

    def _note(self, noted: Receipt, waited: list[Receipt]) -> None:
        with self._arrived:
            waited += [receipt for rows in self._pending.values() for _, receipt in rows] + self._under_way
        noted.settle("stored")

    def _end(self) -> None:
        with contextlib.suppress(Empty):
            while True:  # of threads that put something in while one closes
                self._inbox.get_nowait()()
        self._deaf = True
        with self._arrived:
            self._closing.set()
            self._stored.set()
            self._arrived.notify_all()

    def _drop_pending(self) -> bool:
        """Make room in memory: the least important goes, of these the oldest."""
        for rows in self._pending.values():
            if rows:
                parcel, receipt = rows.popleft()
                self._pending_bytes -= parcel.size_bytes
                self._lost += 1
                receipt.settle("dropped")
                return True
        return False

    def _keep_storing(self) -> None:
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
                return  # the app learns from its receipts
            else:
                self._closing.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_DISK_WAIT_S)

    def _store_pending(self) -> bool:
        with self._arrived:
            rows = [row for name in self._pending for row in self._pending[name]]
            for waiting in self._pending.values():
                waiting.clear()
            self._under_way = [receipt for _, receipt in rows]
            lost, self._lost = self._lost, 0
        try:
            dropped = self._use(lambda store: store.append([parcel for parcel, _ in rows], lost))
        except (OSError, sqlite3.Error):
            with self._arrived:
                for parcel, receipt in reversed(rows):
                    self._pending[PRIORITIES[parcel.kind]].appendleft((parcel, receipt))
                self._under_way = []
                self._lost += lost
            return False
        with self._arrived:
            self._pending_bytes -= sum(parcel.size_bytes for parcel, _ in rows)
            self._under_way = []
        for parcel, receipt in rows:
            receipt.settle("dropped" if parcel.key in dropped else "stored")
        self._stored.set()
        return True

    # --- delivering --------------------------------------------------------------------------------------

    def deliver(self, sink: Sink) -> Delivery:
        """Deliver what waits, a round of at most 64 rows, in the caller's thread.

        A row that fails without anybody saying why is set aside for the others. Once one of them gets
        through, the row is at fault, and it counts as refused: an outage quarantines nothing.

        Raises:
            UsageError: it is another process's.
        """
        stay_in(self._pid)
        with self._sending:
            try:
                return self._deliver(sink)
            except (OSError, sqlite3.Error) as problem:
                return Delivery(down=f"the outbox's own disk: {problem}")

    def _deliver(self, sink: Sink) -> Delivery:
        self._settle()
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
                down = f"{type(problem).__name__}: {problem}"
                self._doubted[parcel.key] = (replace(parcel, body=b""), down)
                break
            else:
                self._delivered.append(parcel)
                self._doubted.pop(parcel.key, None)
                self._refused += self._doubted.values()
                self._doubted = {}
            if self._closed:
                break
        delivery = Delivery(len(self._delivered), len(self._refused), down, retry_after_s)
        self._settle()
        return delivery

    def _settle(self) -> None:
        """Write down what the sink said; where the disk does not take it, before anything is sent again."""
        if self._delivered or self._refused:
            self._use(lambda store: store.settle(self._delivered, self._refused))
            self._delivered, self._refused = [], []

    def _keep_delivering(self) -> None:
        assert self._sink is not None
        wait_s = FIRST_WAIT_S
        while not self._closing.is_set():
            self._stored.clear()
            delivery = self.deliver(self._sink)
            if delivery.down:
                asked_s = min(delivery.retry_after_s or 0.0, LONGEST_WAIT_S)
                self._closing.wait(max(asked_s, wait_s * random.uniform(0.5, 1.0)))
                wait_s = FIRST_WAIT_S if delivery.delivered else min(2 * wait_s, LONGEST_WAIT_S)
            else:
                wait_s = FIRST_WAIT_S
                if not (delivery.delivered or delivery.refused):
                    self._stored.wait()

    # --- looking -----------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Rows and bytes that wait, and what happened to the others since the folder was made.

        Keys: ``waiting``, ``size_bytes``, ``delivered``, ``dropped_age``, ``dropped_room``,
        ``dropped_memory``, ``quarantined``, ``damaged``, ``rebuilt``; of this process only: ``pending``, not
        on disk yet, and ``disk_errors``.

        Raises: OSError, sqlite3.Error: the disk does not answer.
        """
        known = self._use(lambda store: store.counts())
        pending = sum(map(len, self._pending.values())) + len(self._under_way) + self._inbox.qsize()
        known["pending"] = pending
        known["dropped_memory"] += self._lost
        return known | {"disk_errors": self._disk_errors}

    @property
    def trouble(self) -> str:
        """What the disk said last; empty where it works."""
        return self._trouble

    def quarantined(self) -> list[Parcel]:
        """The rows that the backend refused too often, and what it said."""
        return self._use(lambda store: store.quarantined())

    def release(self) -> int:
        """Let the quarantined rows wait again; how many."""
        released = self._use(lambda store: store.release())
        self._inbox.put(self._stored.set)
        return released

    def close(self) -> None:
        """Store what is pending, and end. Closing twice is fine; in a forked process nothing is done."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._inbox.put(self._end)
        for thread in self._threads:
            thread.join(5.0)
        with self._lock:
            self._shut = True
            self._store.close()
        if self._sink is not None:
            self._sink.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _use(self, act: Callable[[OutboxStore], T]) -> T:
        """The file, opened again where it failed before."""
        stay_in(self._pid)
        with self._lock:
            if self._shut:
                raise OSError("the outbox is closed")
            broken, self._broken = self._broken, True  # and stays so where a Ctrl-C comes in between
            try:
                if broken:
                    self._store.reopen()
                done = act(self._store)
            except (OSError, sqlite3.Error) as problem:
                self._disk_errors += 1
                self._trouble = str(problem)
                raise
            self._broken = False
            self._trouble = ""
            return done
