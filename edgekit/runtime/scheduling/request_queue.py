"""Requests of many callers in a line before one session: the most urgent first, none beyond its deadline.

    requests = Requests(session)
    future = requests.run_async(feeds, deadline_ms=100)     # a concurrent.futures.Future; returns at once
    outputs = future.result()                               # or: await asyncio.wrap_future(future)

``Session.run_async`` has one of its own. With ``batching`` requests that wait are answered by one run, where
that was measured to pay. One thread, while there are requests and some seconds longer.
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
from edgekit.system.interrupts import Background, News
from edgekit.target.tensor_checks import fitted
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import Predictor
    from edgekit.runtime.scheduling.batching import Batching

LIMIT = 64
IDLE_S = 5.0
"""How long the thread waits for a request before it ends; the next request begins another one."""
RESERVE = 1.5
"""Times a batch's own time that is kept for it before a deadline."""


class _Request(NamedTuple):
    """One in the line; ordered by ``due_s``, then by ``number``, which is unique."""

    due_s: float
    number: int
    began_s: float
    feeds: Mapping[str, Array]
    future: Pending


class Requests:
    """A line before a session or a budget. Safe between threads, and under interrupts (Ctrl-C).

    A forked process begins with an empty one.

    Args:
        runs: What answers; it must outlive this.
        limit: Requests that may wait.
        batching: Answers several by one run where that pays; None: one by one.
        delay_ms: So long a request may wait for others that would make a batch pay, while nothing runs. 0:
            those are taken together that wait anyway, because a run is under way.
        metrics: Told each answer's ``waiting`` and ``infer``, and each outcome, ``overdue`` and ``refused``
            among them; not besides a budget that tells its own.

    Raises:
        UsageError: ``limit`` or ``delay_ms`` does not fit.
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
        self._begin()
        self._numbers = count()
        self._counts = dict.fromkeys(("answered", "together", "overdue", "refused", "cancelled"), 0)
        self._closed = False

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock, self._news = threading.Lock(), News()
        self._line: list[_Request] = []
        self._thread: Background | None = None
        self._turn: object = None

    def _in_this_process(self) -> None:
        if self._pid != os.getpid():  # the thread stayed in the parent process
            self._begin()

    # --- asking ------------------------------------------------------------------------------------------

    def run_async(
        self, feeds: Mapping[str, Array], deadline_ms: float | None = None
    ) -> Future[dict[str, Array]]:
        """As ``Session.run``, without waiting.

        Args:
            feeds: As for ``Session.run``; to be left as they are until the answer is there.
            deadline_ms: From now. A request whose turn comes later is not run: its future raises BusyError.

        Returns:
            The outputs, or what ``Session.run`` raises. ``cancel()`` takes it out of the line while it waits.

        Raises:
            UsageError: ``feeds`` or ``deadline_ms`` does not fit, or this is closed.
            BusyError: as many as may wait are waiting.
        """
        if deadline_ms is not None and not 0 < deadline_ms < inf:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        fitting = fitted(feeds, self._inputs)
        self._in_this_process()
        future = Pending()
        now_s = time.monotonic()
        due_s = inf if deadline_ms is None else now_s + deadline_ms / 1000
        with self._lock:
            if self._closed:
                raise UsageError("the line of requests is closed; open a new one to run")
            if len(self._line) >= self._limit:
                self._leave_out_cancelled()
            full = len(self._line) >= self._limit
            if full:
                self._counts["refused"] += 1
            else:
                heapq.heappush(self._line, _Request(due_s, next(self._numbers), now_s, fitting, future))
                if self._thread is None:
                    self._turn = turn = object()
                    self._thread = Background(partial(self._serve, turn), "edgekit-requests")
                self._news.tell()
        if full:
            self._tell("refused")
            raise BusyError(f"{self._limit} requests are waiting already; ask later, or raise limit")
        return future

    def run(self, feeds: Mapping[str, Array], deadline_ms: float | None = None) -> dict[str, Array]:
        """The same, and wait for it."""
        return self.run_async(feeds, deadline_ms).result()

    def counts(self) -> dict[str, int]:
        """Requests so far.

        Keys: ``answered``, failures included; of them ``together``, in batches; ``overdue``, not run because
        their deadline was over; ``refused``, not taken; ``cancelled``; and ``waiting`` now.
        """
        self._in_this_process()
        with self._lock:
            return {**self._counts, "waiting": len(self._line)}

    def close(self) -> None:
        """Cancel what waits, and let what runs end. Closing twice is fine."""
        self._in_this_process()
        with self._lock:
            self._closed = True
            thread = self._thread
            self._news.tell()
        for request in list(self._line):  # the thread takes none any more
            request.future.cancel()
        with self._lock:
            self._counts["cancelled"] += len(self._line)
            self._line.clear()
        if thread is not None:
            thread.join()

    def __enter__(self) -> Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leave_out_cancelled(self) -> None:
        waiting = [request for request in self._line if not request.future.cancelled()]
        self._counts["cancelled"] += len(self._line) - len(waiting)
        self._line = waiting
        heapq.heapify(self._line)

    # --- answering, in the thread ------------------------------------------------------------------------

    def _serve(self, turn: object) -> None:
        while (first := self._next(turn)) is not None:
            requests = [request for request in self._gathered(first) if self._begins(request)]
            if self._batching is not None and len(requests) >= self._batching.least:
                self._answer_together(self._batching, requests)
            else:
                for request in requests:
                    self._answer(request)
            del first, requests  # the callers' arrays are not kept until the next one

    def _next(self, turn: object) -> _Request | None:
        """The most urgent one; None where there is none for a while, or another thread has its turn: whoever
        began this one may have been interrupted before it was known."""
        waited = False
        while True:
            with self._lock:
                if self._turn is not turn:
                    return None
                if self._line and not self._closed:
                    return heapq.heappop(self._line)
                if waited or self._closed:
                    self._turn = self._thread = None
                    return None
                news = self._news.waiter()
            waited = not news.acquire(timeout=IDLE_S)

    def _gathered(self, first: _Request) -> list[_Request]:
        """It, and those that one run can answer with it: before the deadline of each of them."""
        batching = self._batching
        if batching is None:
            return [first]
        while True:
            with self._lock:
                urgent_s = min(first.due_s, self._line[0].due_s) if self._line else first.due_s
                latest_s = urgent_s - RESERVE * batching.batch_s
                left_s = min(first.began_s + self._delay_s, latest_s) - time.monotonic()
                if left_s <= 0 or len(self._line) + 1 >= batching.size or self._closed:
                    if time.monotonic() > latest_s or len(self._line) + 1 < batching.least or self._closed:
                        return [first]
                    further = min(batching.size - 1, len(self._line))
                    return [first, *(heapq.heappop(self._line) for _ in range(further))]
                news = self._news.waiter()
            news.acquire(timeout=left_s)

    def _begins(self, request: _Request) -> bool:
        """Whether it is to be run. Not under the lock: a future's callbacks may ask again."""
        if not request.future.set_running_or_notify_cancel():
            self._count("cancelled")
            return False
        over_s = time.monotonic() - request.due_s
        if over_s < 0:
            return True
        self._count("overdue")
        self._tell("overdue")
        waited_ms = 1000 * (time.monotonic() - request.began_s)
        request.future.set_exception(
            BusyError(f"not run: its deadline was over when its turn came, after {waited_ms:.0f} ms")
        )
        return False

    def _answer(self, request: _Request) -> None:
        self._count("answered")
        begun_s = time.monotonic()
        try:
            outputs = self._runs.run(request.feeds)
        except BaseException as problem:  # the caller's to handle, whatever it is
            self._tell("failed")
            request.future.set_exception(problem)
        else:
            self._tell("ok", request, begun_s)
            request.future.set_result(outputs)

    def _answer_together(self, batching: Batching, requests: list[_Request]) -> None:
        begun_s = time.monotonic()
        try:
            answers = batching.run([request.feeds for request in requests])
        except Exception:  # one of them may be to blame: each alone
            for request in requests:
                self._answer(request)
            return
        self._count("answered", len(requests))
        self._count("together", len(requests))
        for request, outputs in zip(requests, answers, strict=True):
            self._tell("ok", request, begun_s)
            request.future.set_result(outputs)

    def _tell(self, outcome: str, request: _Request | None = None, begun_s: float = 0.0) -> None:
        if self._metrics is None:
            return
        if request is not None:
            waited_s, took_s = begun_s - request.began_s, time.monotonic() - begun_s
            self._metrics.took({"waiting": waited_s, "infer": took_s})
        self._metrics.answered(outcome)

    def _count(self, name: str, more: int = 1) -> None:
        with self._lock:
            self._counts[name] += more
