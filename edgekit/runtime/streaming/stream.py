"""Frames in, predictions out, in order, on all cores.

    with session.stream(jpegs, decode=read_jpeg) as stream:
        for result in stream:
            show(result.frame, result.answer)

Two modes, chosen by a cached measurement on this device (``parallelism.py``):

    workers   N threads, each with a single-threaded runner of the active variant; each takes a frame through
              all stages, so that every core is busy whatever the stages' proportions
    stages    three threads: decode and prepare | infer, on all of the session's threads | decode outputs

Frames are passed between stages by reference. The number in flight is bounded: the source is read no faster
than results are fetched. With ``newest`` a live source is read in a thread, and only its latest frame is
used.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.runtime.streaming import parallelism
from edgekit.runtime.streaming.latest_frame import LatestFrame
from edgekit.runtime.streaming.replica import Replica
from edgekit.system.closing import Closing
from edgekit.system.interrupts import Background, Notifier, in_engine
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import SessionProtocol

Step = tuple[str, Callable[["_Task"], None]]

AHEAD = 2
"""Frames in flight for each worker: one being processed and one waiting to be fetched."""


@dataclass(frozen=True)
class Result:
    """The result of one frame.

    Attributes:
        number: Index of the frame among those processed, from 0.
        frame: Result of ``decode``, or the item itself: the object, not a copy.
        answer: Same result as of ``Session.predict``; the outputs if the item was feeds or the card has no
            task.
        seconds: Seconds by stage (``processing/latency_contract.py``); their sum is the time from reading the
            frame to the result.
    """

    number: int
    frame: Any
    answer: Any
    seconds: Mapping[str, float]


@dataclass(slots=True)
class _Task:
    number: int
    frame: Any
    began_s: float
    seconds: dict[str, float] = field(default_factory=dict)
    feeds: Mapping[str, Array] | None = None
    placed: Any = None
    answer: Any = None
    engine: str | None = None
    fell_back: bool | None = None
    problem: BaseException | None = None


class Stream(Closing):
    """An iterator over :class:`Result`, in the order of the frames; made by ``Session.stream``.

    Threads and runners start with the first frame fetched. They end after the last one, at an error, at
    ``close``, or when a ``for`` loop over the stream is left.

    Args:
        session: Must outlive the stream; it runs the frames of a worker whose runner failed.
        items: Frames uint8 [rows, columns, 3]; or what ``decode`` turns into frames; or feeds by input name.
            Read by one thread at a time.
        decode: Turns an item into a frame, in a worker. Work in the ``items`` iterator itself is not
            parallel.
        order: Colour order of the frames, as of ``Session.predict``.
        newest: Skip frames that arrived while others were processed; else every frame is processed.
        workers: Number of workers. None means chosen by measuring. 1 means three threads, one a stage, and
            the session's runner.
        options: Decoding options that override the card's.

    Raises:
        UsageError: ``workers`` is not a whole number of at least 1.
    """

    def __init__(
        self,
        session: SessionProtocol,
        items: Iterable[Any],
        *,
        decode: Callable[[Any], Any] | None = None,
        order: str = "rgb",
        newest: bool = False,
        workers: int | None = None,
        metrics: Metrics | None = None,
        **options: Any,
    ) -> None:
        if workers is not None and (not isinstance(workers, int) or workers < 1):
            raise UsageError(f"workers must be a whole number from 1, not {workers!r}")
        self._session, self._metrics = session, metrics
        self._newest = LatestFrame(items) if newest else None
        self._pipeline = _Pipeline(
            self._newest or iter(items), partial(_steps, session, decode, order, options)
        )
        self._requested_workers = workers
        self._plan: parallelism.Parallelism | None = None
        self._pid = os.getpid()
        self._started = self._closed = False

    @property
    def plan(self) -> parallelism.Parallelism | None:
        """Number of workers and threads; None before the first frame."""
        return self._plan

    @property
    def dropped(self) -> int:
        """Frames skipped for newer ones."""
        return 0 if self._newest is None else self._newest.dropped

    @property
    def notes(self) -> tuple[str, ...]:
        """Deviations from the plan, e.g. a failed runner whose frames run on the session."""
        return () if self._plan is None else self._plan.notes()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        if self._closed:
            raise StopIteration
        if self._started and self._pid != os.getpid():
            raise UsageError(
                "this stream was started before os.fork(), and its threads stayed in the parent process: "
                "start one in this process"
            )
        try:
            if not self._started:
                self._start()
            task = self._pipeline.fetch()
        except BaseException:  # it cannot start, or an interrupt
            self.close()
            raise
        if task is None:
            self.close()
            raise StopIteration
        if task.problem is not None:
            self.close()
            if self._metrics is not None:
                self._metrics.answered("failed")
            raise task.problem
        whole_s = time.perf_counter() - task.began_s
        task.seconds["waiting"] = max(0.0, whole_s - sum(task.seconds.values()))
        if self._metrics is not None:
            self._metrics.took(task.seconds, task.engine)
            self._metrics.answered("ok", task.fell_back, task.answer)
        return Result(task.number, task.frame, task.answer, task.seconds)

    def close(self) -> None:
        """End all threads and free what they hold. Closing twice is fine."""
        if self._pid != os.getpid():
            self._closed = True
        if self._closed:
            return
        self._pipeline.stop()
        if self._newest is not None:
            self._newest.close()
        self._pipeline.join()
        if self._plan is not None:
            self._plan.close()
        self._closed = True  # last: an interrupted close can be repeated

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "_closed") and not exiting():  # __init__ was completed; this module is not empty yet
            self.close()

    def _start(self) -> None:
        self._started = True
        self._plan = parallelism.choose_parallelism(
            self._session, self._requested_workers, self._newest is not None
        )
        slots = self._plan.workers * (1 if self._newest is not None else AHEAD)
        self._pipeline.start(self._plan.runners, slots)


class _Pipeline:
    """The threads and the frames between them. It does not reference the Stream: an unreferenced stream is
    collected and ends."""

    def __init__(
        self, items: Iterator[Any], steps: Callable[[SessionProtocol | Replica], Sequence[Step]]
    ) -> None:
        self._items, self._steps = items, steps
        self._reading = threading.Lock()
        self._lock, self._changed = threading.Lock(), Notifier()
        self._threads: list[Background] = []
        self._done: dict[int, _Task] = {}
        self._slots = self._under_way = self._read_count = self._fetched = 0
        self._end: int | None = None
        self._stopped = False

    def start(self, runners: Sequence[SessionProtocol | Replica], slots: int) -> None:
        works: list[Callable[[], None]]
        if len(runners) > 1:
            self._slots = slots
            works = [partial(self._work, self._take, self._steps(runner), self._finish) for runner in runners]
        else:
            self._slots = slots + 2
            first: SimpleQueue[_Task | None] = SimpleQueue()
            second: SimpleQueue[_Task | None] = SimpleQueue()
            steps = self._steps(runners[0])
            works = [
                partial(self._work, self._take, steps[:2], first.put),
                partial(self._work, first.get, steps[2:3], second.put),
                partial(self._work, second.get, steps[3:], self._finish),
            ]
        for number, work in enumerate(works):
            self._threads.append(Background(work, f"edgekit-stream-{number}"))

    def fetch(self) -> _Task | None:
        while True:
            with self._lock:
                task = self._done.pop(self._fetched, None)
                if task is not None:
                    self._fetched += 1
                    self._under_way -= 1
                    self._changed.notify()
                    return task
                if self._stopped or (self._end is not None and self._fetched >= self._end):
                    return None
                waiter = self._changed.waiter()
            waiter.acquire()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._changed.notify()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        self._done.clear()
        self._items = iter(())  # closes an otherwise unreferenced generator

    def _work(
        self,
        take: Callable[[], _Task | None],
        steps: Sequence[Step],
        give: Callable[[_Task | None], None],
    ) -> None:
        while (task := take()) is not None:
            for stage, step in steps:
                if task.problem is None and not self._stopped:
                    began = time.perf_counter()
                    try:
                        step(task)
                    except BaseException as problem:  # raised when the result is fetched
                        task.problem = problem
                    task.seconds[stage] = time.perf_counter() - began
            give(task)
        give(None)

    def _take(self) -> _Task | None:
        while True:
            with self._lock:
                if self._under_way < self._slots or self._stopped:
                    self._under_way += 1
                    break
                waiter = self._changed.waiter()
            waiter.acquire()
        with self._reading:
            if self._stopped or self._end is not None:
                return None
            try:
                task = _Task(self._read_count, next(self._items), time.perf_counter())
            except StopIteration:
                self._set_end(self._read_count)
                return None
            except BaseException as problem:  # of the source: raised after the results before it
                task = _Task(self._read_count, None, time.perf_counter(), problem=problem)
                self._set_end(self._read_count + 1)
            self._read_count += 1
            return task

    def _set_end(self, end: int) -> None:
        with self._lock:
            self._end = end
            self._changed.notify()

    def _finish(self, task: _Task | None) -> None:
        if task is not None:
            with self._lock:
                self._done[task.number] = task
                self._changed.notify()


def _steps(
    session: SessionProtocol,
    decode: Callable[[Any], Any] | None,
    order: str,
    options: Mapping[str, Any],
    runner: SessionProtocol | Replica,
) -> Sequence[Step]:
    initial = session.active.engine, bool(session.fallbacks)

    def decoded(task: _Task) -> None:
        if decode is not None:
            task.frame = decode(task.frame)

    def prepared(task: _Task) -> None:
        if isinstance(task.frame, Mapping):
            task.feeds = task.frame
        else:
            task.feeds, task.placed = session.prepare(task.frame, order)

    def inferred(task: _Task) -> None:
        assert task.feeds is not None
        with in_engine():
            task.answer = runner.run(task.feeds)
        # Read now, not when the result is fetched: a later frame may cause a fallback meanwhile.
        now = session.active.engine, bool(session.fallbacks)
        is_replica = isinstance(runner, Replica) and not runner.failed
        task.engine, task.fell_back = initial if is_replica else now
        task.feeds = None

    def answered(task: _Task) -> None:
        if task.placed is not None and session.card.task is not None:
            task.answer = session.decode(task.answer, task.placed, **options)

    return (("decode", decoded), ("prepare", prepared), ("infer", inferred), ("decode_outputs", answered))
