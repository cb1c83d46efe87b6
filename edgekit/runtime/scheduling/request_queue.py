"""A queue of requests in front of a session: earliest deadline first, expired requests are not run.

    requests = Requests(session)
    future = requests.run_async(feeds, deadline_ms=100)     # a concurrent.futures.Future; returns at once
    outputs = future.result()                               # or: await asyncio.wrap_future(future)

A request of a more urgent class (``priority``) goes before all others. ``Session.run_async`` has a queue of
its own. With ``batching``, queued requests run as a batch if that was measured to be faster. One thread,
which ends after some idle seconds.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import count
from math import ceil, inf
from typing import NamedTuple

from edgekit.errors import BusyError, UsageError
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.predictor import Predictor
from edgekit.runtime.scheduling.batching import Batch, Batching
from edgekit.runtime.scheduling.pending import Pending
from edgekit.runtime.scheduling.run_time import RunTime
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.system.closing import Closing
from edgekit.system.forked import tell_of_fork
from edgekit.system.interrupts import Background, Notifier, in_engine
from edgekit.target.tensor_checks import fitted
from edgekit.tensor_spec import Array

LIMIT = 64
IDLE_S = 5.0
"""Idle time after which the thread ends; the next request starts a new one."""
RESERVE = 1.5
"""Multiple of a batch's time that is reserved before a deadline."""
CAUTION = 1.25
"""Multiple of the estimated wait that must end before a deadline: a request that cannot be answered in time
is refused at once, and not when its deadline has passed in the queue."""


class _Request(NamedTuple):
    """A queued request; ordered by ``priority``, ``due_s``, then by ``number``, which is unique."""

    priority: int
    due_s: float
    number: int
    queued_s: float
    feeds: Mapping[str, Array]
    future: Pending
    record: RunRecord | None
    batch: Batch | None
    """Batches at its shape; requests of one batch have the same one. None means it runs alone."""


class Requests(Closing):
    """A queue in front of a session or a budget. Thread-safe, also under interrupts (Ctrl-C).

    A forked process starts with an empty queue.

    Args:
        runs: Runs the requests; it must outlive this.
        batching: Runs several requests at once if that is faster. None means one by one.
        delay_ms: Longest time that a request waits, while nothing runs, for others to fill a batch. 0: only
            requests that are queued anyway, during a run, are batched.
        shed: Refuse at once what, by the runs so far, would not be answered by its deadline, and do not
            begin a run that would not end by it.
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
        shed: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        if limit < 1 or not 0 <= delay_ms < inf:
            raise UsageError("limit must be a whole number from 1, and delay_ms a number from 0")
        self._runs, self._limit, self._delay_s = runs, limit, delay_ms / 1000
        self._batching = batching if batching is not None and batching.pays else None
        self._metrics, self._shed = metrics, shed
        self._one_s, self._batch_s = RunTime(), RunTime()
        self._shapes = runs.bundle.shapes
        self._reset()
        self._numbers = count()
        self._counts = dict.fromkeys(("answered", "together", "runs", "overdue", "refused", "cancelled"), 0)
        self._closed = False
        tell_of_fork(self)

    def forked(self) -> None:
        """Start empty in a forked process: the thread exists in the parent only."""
        self._reset()

    def _reset(self) -> None:
        self._lock, self._changed = threading.Lock(), Notifier()
        self._queue: list[_Request] = []
        self._thread: Background | None = None
        self._worker: object = None
        self._running_s: float | None = None  # since when
        self._ended_s = 0.0  # when the last run ended

    # --- callers -----------------------------------------------------------------------------------------

    def run_async(
        self,
        feeds: Mapping[str, Array],
        deadline_ms: float | None = None,
        priority: int = 0,
        record: RunRecord | None = None,
    ) -> Future[dict[str, Array]]:
        """Run like ``Session.run``, without waiting.

        Args:
            feeds: Inputs by name, as arrays; do not change them until the result is available.
            deadline_ms: Time limit in ms. A request queued longer is not run: its future raises BusyError.
            priority: Priority class; smaller ones are run first. If the queue is full, a request of a larger
                class is dropped: its future raises BusyError.

        Returns:
            A future of the outputs, or of the error of ``Session.run``. ``cancel()`` removes the request.

        Raises:
            UsageError: ``feeds`` or ``deadline_ms`` is invalid, or this is closed.
            BusyError: the queue is full, or too long for the deadline (``shed``).
        """
        if deadline_ms is not None and not 0 < deadline_ms < inf:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        checked = fitted(feeds, self._shapes)
        batch = None if self._batching is None else self._batching.batch_of(checked)
        future = Pending()
        now_s = time.monotonic()
        due_s = inf if deadline_ms is None else now_s + deadline_ms / 1000
        if record is not None:
            record.queued_s = now_s
        with self._lock:
            if self._closed:
                raise UsageError("the request queue is closed; open a new one to run")
            if len(self._queue) >= self._limit:
                self._drop_cancelled()
            request = _Request(priority, due_s, next(self._numbers), now_s, checked, future, record, batch)
            reason, displaced = self._refusal(request), None
            if reason:
                self._counts["refused"] += 1
            else:
                if len(self._queue) >= self._limit:
                    displaced = max(self._queue)
                    self._queue.remove(displaced)
                    heapq.heapify(self._queue)
                    self._counts["refused"] += 1
                heapq.heappush(self._queue, request)
                if self._thread is None:
                    self._worker = worker = object()
                    self._thread = Background(partial(self._serve, worker), "edgekit-requests")
                self._changed.notify()
        if reason:
            self._report("refused")
            raise BusyError(reason)
        if displaced is not None and displaced.future.set_running_or_notify_cancel():
            self._report("refused")
            displaced.future.set_exception(BusyError("not run: the queue is full of more urgent requests"))
        return future

    def _refusal(self, request: _Request) -> str:
        """Return the reason that a request is not queued, or "" if it is. The caller holds the lock."""
        if len(self._queue) >= self._limit and request.priority >= max(self._queue).priority:
            return f"the queue is full ({self._limit} requests); retry later, or raise limit"
        if self._shed and request.due_s < inf:
            answered_s = request.queued_s + CAUTION * self._expected_s(request)
            if answered_s > request.due_s:
                ahead, deadline_ms = len(self._queue), 1000 * (request.due_s - request.queued_s)
                return f"{ahead} requests wait, longer than {deadline_ms:g} ms"
        return ""

    def _expected_s(self, request: _Request | None = None) -> float:
        """Estimate the seconds until a request is answered, from the runs so far. None stands for a request
        after all others."""
        ahead = Counter(queued.batch for queued in self._queue if request is None or queued < request)
        last = request or (self._queue[-1] if self._queue else None)
        batch = None if last is None else last.batch
        left_s = 0.0
        running_s = self._running_s
        if running_s is not None:
            left_s = max(0.0, self._one_s.mean_s - (time.monotonic() - running_s))
        alike = ahead.pop(batch, 0)
        left_s += sum(self._run_s(other, count) for other, count in ahead.items())
        if self._is_batched(batch, alike + 1):
            assert self._batching is not None
            return left_s + alike // self._batching.size * self._batch_s.mean_s + self._batch_s.upper_s
        return left_s + alike * self._one_s.mean_s + (self._one_s.upper_s if alike or left_s else 0.0)

    def _run_s(self, batch: Batch | None, count: int) -> float:
        if self._is_batched(batch, count):
            assert self._batching is not None
            return ceil(count / self._batching.size) * self._batch_s.mean_s
        return count * self._one_s.mean_s

    def _is_batched(self, batch: Batch | None, count: int) -> bool:
        return batch is not None and bool(self._batch_s.mean_s) and count >= batch.min_requests

    def expected_s(self) -> float:
        """Estimate the seconds until a new request would be answered, if it is the last in the queue."""
        with self._lock:
            return self._expected_s()

    def run(self, feeds: Mapping[str, Array], deadline_ms: float | None = None) -> dict[str, Array]:
        """Run like ``run_async``, and wait for the result."""
        return self.run_async(feeds, deadline_ms).result()

    def counts(self) -> dict[str, int]:
        """Return the counts of requests so far.

        Keys: ``answered``: run, including failures; ``together``: of those, in batches; ``runs``: calls of
        the engine; ``overdue``: not run because their deadline had passed; ``refused``: the queue was full;
        ``cancelled``; and ``waiting``: queued now.
        """
        with self._lock:
            return {**self._counts, "waiting": len(self._queue)}

    def close(self) -> None:
        """Cancel queued requests, and let the running one end. Closing twice is fine."""
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

    def _drop_cancelled(self) -> None:
        waiting = [request for request in self._queue if not request.future.cancelled()]
        self._counts["cancelled"] += len(self._queue) - len(waiting)
        self._queue = waiting
        heapq.heapify(self._queue)

    # --- worker thread -----------------------------------------------------------------------------------

    def _serve(self, worker: object) -> None:
        while (first := self._next(worker)) is not None:
            requests = [request for request in self._collect_batch(first) if self._start(request)]
            batch = first.batch
            if self._batching is not None and batch is not None and len(requests) >= batch.min_requests:
                self._run_batch(self._batching, requests)
            else:
                for request in requests:
                    self._run_one(request)
            del first, requests  # do not keep the callers' arrays until the next request

    def _next(self, worker: object) -> _Request | None:
        """Return the most urgent request; None after the idle time, or if another thread is in charge (the
        caller that started this one may have been interrupted before it was registered)."""
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
        """Return this request, and the queued ones of its shape that can run in a batch with it within all
        deadlines. None goes ahead of a more urgent class of another shape."""
        batching, batch = self._batching, first.batch
        if batching is None or batch is None:
            return [first]
        while True:
            with self._lock:
                most_urgent = min((r.priority for r in self._queue if r.batch is not batch), default=inf)
                alike = [r for r in self._queue if r.batch is batch and r.priority <= most_urgent]
                urgent_s = min(first.due_s, self._queue[0].due_s) if self._queue else first.due_s
                latest_s = urgent_s - RESERVE * batch.batch_s
                left_s = min(first.queued_s + self._delay_s, latest_s) - time.monotonic()
                if left_s <= 0 or len(alike) + 1 >= batching.size or self._closed:
                    if time.monotonic() > latest_s or len(alike) + 1 < batch.min_requests or self._closed:
                        return [first]
                    further = heapq.nsmallest(batching.size - 1, alike)
                    numbers = {request.number for request in further}
                    self._queue = [r for r in self._queue if r.number not in numbers]
                    heapq.heapify(self._queue)
                    return [first, *further]
                waiter = self._changed.waiter()
            waiter.acquire(timeout=left_s)

    def _start(self, request: _Request) -> bool:
        """Return whether to run it. Called without the lock: a future's callbacks may queue requests."""
        if not request.future.set_running_or_notify_cancel():
            self._count("cancelled")
            return False
        now_s = time.monotonic()
        # Who came to an idle queue is run whatever runs took: else one slow run would end all others.
        waited = self._shed and request.queued_s < self._ended_s
        if now_s < request.due_s - (self._one_s.mean_s if waited else 0.0):
            return True
        self._count("overdue")
        self._report("overdue")
        waited_ms = 1000 * (now_s - request.queued_s)
        reason = "its deadline had passed" if now_s >= request.due_s else "it would have missed its deadline"
        request.future.set_exception(BusyError(f"not run: {reason} after {waited_ms:.0f} ms in the queue"))
        return False

    def _run_one(self, request: _Request) -> None:
        self._count("answered")
        run_start_s = self._begin_run()
        try:
            with in_engine(), nullcontext() if request.record is None else request.record.running(self._runs):
                outputs = self._runs.run(request.feeds)
        except BaseException as problem:  # passed on to the caller
            self._has_run(run_start_s, None)
            self._report("failed")
            request.future.set_exception(problem)
        else:
            self._has_run(run_start_s, self._one_s)
            self._report("ok", request, run_start_s)
            request.future.set_result(outputs)

    def _run_batch(self, batching: Batching, requests: list[_Request]) -> None:
        run_start_s = self._begin_run()
        try:
            with in_engine(), ExitStack() as records:
                for record in (request.record for request in requests if request.record is not None):
                    records.enter_context(record.running(batching, len(requests)))
                batch_outputs = batching.run([request.feeds for request in requests])
        except Exception:  # one request may be the cause: run each alone
            for request in requests:
                self._run_one(request)
            return
        self._has_run(run_start_s, self._batch_s)
        self._count("answered", len(requests))
        self._count("together", len(requests))
        for request, outputs in zip(requests, batch_outputs, strict=True):
            self._report("ok", request, run_start_s)
            request.future.set_result(outputs)

    def _begin_run(self) -> float:
        with self._lock:
            self._running_s = run_start_s = time.monotonic()
            self._counts["runs"] += 1
        return run_start_s

    def _has_run(self, run_start_s: float, kind: RunTime | None) -> None:
        with self._lock:  # callers estimate from all of these at once
            self._running_s, self._ended_s = None, time.monotonic()
            if kind is not None:
                kind.took(self._ended_s - run_start_s)

    def _report(self, outcome: str, request: _Request | None = None, run_start_s: float = 0.0) -> None:
        if self._metrics is None:
            return
        if request is not None:
            waited_s, took_s = run_start_s - request.queued_s, time.monotonic() - run_start_s
            self._metrics.took({"waiting": waited_s, "infer": took_s})
        self._metrics.answered(outcome)

    def _count(self, name: str, more: int = 1) -> None:
        with self._lock:
            self._counts[name] += more
