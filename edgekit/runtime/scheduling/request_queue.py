"""A queue of requests in front of a session: earliest deadline first, expired requests are not run.

    requests = Requests(session)
    future = requests.run_async(feeds, deadline_ms=100)     # a concurrent.futures.Future; returns at once
    outputs = future.result()                               # or: await asyncio.wrap_future(future)

``Session.run_async`` has a queue of its own. With ``batching``, queued requests run as a batch where that was
measured to be faster. One thread, which ends after some idle seconds.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import BusyError, UsageError
from edgekit.runtime.scheduling.pending import Pending
from edgekit.system.interrupts import Background, Notifier
from edgekit.target.tensor_checks import fitted
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import Predictor
    from edgekit.runtime.scheduling.batching import Batching

LIMIT = 64
IDLE_S = 5.0
"""Idle time after which the thread ends; the next request starts a new one."""
RESERVE = 1.5
"""Multiple of a batch's time that is reserved before a deadline."""


class _Request(NamedTuple):
    """A queued request; ordered by ``due_s``, then by ``number``, which is unique."""

    due_s: float
    number: int
    began_s: float
    feeds: Mapping[str, Array]
    future: Pending


class Requests:
    """A queue in front of a session or a budget. Thread-safe, also under interrupts (Ctrl-C).

    A forked process starts with an empty queue.

    Args:
        runs: Runs the requests; it must outlive this.
        limit: Maximum number of queued requests.
        batching: Runs several requests at once where that is faster; None: one by one.
        delay_ms: How long a request may wait, while nothing runs, for others to fill a batch. 0: only
            requests that are queued anyway, during a run, are batched.
        metrics: Records ``waiting`` and ``infer`` of each request, and each outcome, including ``overdue``
            and ``refused``; do not combine it with a budget that has metrics.

    Raises:
        UsageError: ``limit`` or ``delay_ms`` is invalid.
    """

    def __init__(
        self,
        runs: Predictor,
        limit: int = LIMIT,
        *,
        batching: Batching | None = None,
        delay_ms: float = 0.0,
        metrics: Metrics | None = None,
    ) -> None:
        if limit < 1 or not 0 <= delay_ms < inf:
            raise UsageError("limit must be a whole number from 1, and delay_ms a number from 0")
        self._runs, self._limit, self._delay_s = runs, limit, delay_ms / 1000
        self._batching = batching if batching is not None and batching.pays else None
        self._metrics = metrics
        self._inputs = runs.bundle.inputs
        self._reset()
        self._numbers = count()
        self._counts = dict.fromkeys(("answered", "together", "overdue", "refused", "cancelled"), 0)
        self._closed = False

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock, self._changed = threading.Lock(), Notifier()
        self._queue: list[_Request] = []
        self._thread: Background | None = None
        self._worker: object = None

    def _reset_after_fork(self) -> None:
        if self._pid != os.getpid():  # the thread exists in the parent process only
            self._reset()

    # --- callers -----------------------------------------------------------------------------------------

    def run_async(
        self, feeds: Mapping[str, Array], deadline_ms: float | None = None
    ) -> Future[dict[str, Array]]:
        """As ``Session.run``, without waiting.

        Args:
            feeds: As for ``Session.run``; do not change the arrays until the result is there.
            deadline_ms: From now. A request still queued after it is not run: its future raises BusyError.

        Returns:
            The outputs, or what ``Session.run`` raises. ``cancel()`` removes it from the queue.

        Raises:
            UsageError: ``feeds`` or ``deadline_ms`` is invalid, or this is closed.
            BusyError: the queue is full.
        """
        if deadline_ms is not None and not 0 < deadline_ms < inf:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        checked = fitted(feeds, self._inputs)
        self._reset_after_fork()
        future = Pending()
        now_s = time.monotonic()
        due_s = inf if deadline_ms is None else now_s + deadline_ms / 1000
        with self._lock:
            if self._closed:
                raise UsageError("the request queue is closed; open a new one to run")
            if len(self._queue) >= self._limit:
                self._drop_cancelled()
            full = len(self._queue) >= self._limit
            if full:
                self._counts["refused"] += 1
            else:
                heapq.heappush(self._queue, _Request(due_s, next(self._numbers), now_s, checked, future))
                if self._thread is None:
                    self._worker = worker = object()
                    self._thread = Background(partial(self._serve, worker), "edgekit-requests")
                self._changed.notify()
        if full:
            self._report("refused")
            raise BusyError(f"the queue is full ({self._limit} requests); retry later, or raise limit")
        return future

    def run(self, feeds: Mapping[str, Array], deadline_ms: float | None = None) -> dict[str, Array]:
        """The same, and wait for the result."""
        return self.run_async(feeds, deadline_ms).result()

    def counts(self) -> dict[str, int]:
        """Counts of requests so far.

        Keys: ``answered``: run, including failures; ``together``: of those, in batches; ``overdue``: not run
        because their deadline had passed; ``refused``: the queue was full; ``cancelled``; and ``waiting``:
        queued now.
        """
        self._reset_after_fork()
        with self._lock:
            return {**self._counts, "waiting": len(self._queue)}

    def close(self) -> None:
        """Cancel queued requests, and let the running one end. Closing twice is fine."""
        self._reset_after_fork()
        with self._lock:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        for request in list(self._queue):  # the thread takes no more
            request.future.cancel()
        with self._lock:
            self._counts["cancelled"] += len(self._queue)
            self._queue.clear()
        if thread is not None:
            thread.join()

    def __enter__(self) -> Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop_cancelled(self) -> None:
        waiting = [request for request in self._queue if not request.future.cancelled()]
        self._counts["cancelled"] += len(self._queue) - len(waiting)
        self._queue = waiting
        heapq.heapify(self._queue)

    # --- worker thread -----------------------------------------------------------------------------------

    def _serve(self, worker: object) -> None:
        while (first := self._next(worker)) is not None:
            requests = [request for request in self._collect_batch(first) if self._start(request)]
            if self._batching is not None and len(requests) >= self._batching.least:
                self._run_batch(self._batching, requests)
            else:
                for request in requests:
                    self._run_one(request)
            del first, requests  # do not keep the callers' arrays until the next request

    def _next(self, worker: object) -> _Request | None:
        """The most urgent request; None after the idle time, or if another thread is in charge (the caller
        that started this one may have been interrupted before it was registered)."""
        waited = False
        while True:
            with self._lock:
                if self._worker is not worker:
                    return None
                if self._queue and not self._closed:
                    return heapq.heappop(self._queue)
                if waited or self._closed:
                    self._worker = self._thread = None
                    return None
                waiter = self._changed.waiter()
            waited = not waiter.acquire(timeout=IDLE_S)

    def _collect_batch(self, first: _Request) -> list[_Request]:
        """This request, and those that can run in a batch with it within all their deadlines."""
        batching = self._batching
        if batching is None:
            return [first]
        while True:
            with self._lock:
                urgent_s = min(first.due_s, self._queue[0].due_s) if self._queue else first.due_s
                latest_s = urgent_s - RESERVE * batching.batch_s
                left_s = min(first.began_s + self._delay_s, latest_s) - time.monotonic()
                if left_s <= 0 or len(self._queue) + 1 >= batching.size or self._closed:
                    if time.monotonic() > latest_s or len(self._queue) + 1 < batching.least or self._closed:
                        return [first]
                    further = min(batching.size - 1, len(self._queue))
                    return [first, *(heapq.heappop(self._queue) for _ in range(further))]
                waiter = self._changed.waiter()
            waiter.acquire(timeout=left_s)

    def _start(self, request: _Request) -> bool:
        """Whether to run it. Called without the lock: a future's callbacks may queue requests."""
        if not request.future.set_running_or_notify_cancel():
            self._count("cancelled")
            return False
        over_s = time.monotonic() - request.due_s
        if over_s < 0:
            return True
        self._count("overdue")
        self._report("overdue")
        waited_ms = 1000 * (time.monotonic() - request.began_s)
        request.future.set_exception(
            BusyError(f"not run: its deadline had passed after {waited_ms:.0f} ms in the queue")
        )
        return False

    def _run_one(self, request: _Request) -> None:
        self._count("answered")
        begun_s = time.monotonic()
        try:
            outputs = self._runs.run(request.feeds)
        except BaseException as problem:  # passed on to the caller
            self._report("failed")
            request.future.set_exception(problem)
        else:
            self._report("ok", request, begun_s)
            request.future.set_result(outputs)

    def _run_batch(self, batching: Batching, requests: list[_Request]) -> None:
        begun_s = time.monotonic()
        try:
            batch_outputs = batching.run([request.feeds for request in requests])
        except Exception:  # one request may be the cause: run each alone
            for request in requests:
                self._run_one(request)
            return
        self._count("answered", len(requests))
        self._count("together", len(requests))
        for request, outputs in zip(requests, batch_outputs, strict=True):
            self._report("ok", request, begun_s)
            request.future.set_result(outputs)

    def _report(self, outcome: str, request: _Request | None = None, begun_s: float = 0.0) -> None:
        if self._metrics is None:
            return
        if request is not None:
            waited_s, took_s = begun_s - request.began_s, time.monotonic() - begun_s
            self._metrics.took({"waiting": waited_s, "infer": took_s})
        self._metrics.answered(outcome)

    def _count(self, name: str, more: int = 1) -> None:
        with self._lock:
            self._counts[name] += more
