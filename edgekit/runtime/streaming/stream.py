"""Frames in, answers out, in order, with all cores at work.

    with session.stream(jpegs, decode=read_jpeg) as stream:
        for result in stream:
            show(result.frame, result.answer)

Two ways, chosen by measuring on this device (``parallel.py``), the choice remembered:

    workers   N threads, each with a single-thread runner of the active variant; each takes the next frame all
              the way, so that every core is busy whatever the stages' proportions
    stages    three threads: decode and prepare | infer, on all of the session's threads | decode outputs

Frames go from stage to stage by reference. What is under way is bounded: a source is read no faster than
answers are fetched. With ``newest`` a source that cannot wait is read in a thread, and its newest frame is
taken.
"""

from __future__ import annotations

import os
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
from edgekit.system.interrupts import Background, News
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import SessionProtocol

Step = tuple[str, Callable[["_Passing"], None]]

AHEAD = 2
"""Frames under way for each worker, one in work and one waiting to be fetched."""


@dataclass(frozen=True)
class Result:
    """The answer of one frame.

    Attributes:
        number: Of the frame among those that were taken, from 0.
        frame: What ``decode`` gave, or the item itself: the object, not a copy.
        answer: As ``Session.predict`` gives it; the outputs where the item was feeds or the card has no task.
        seconds: By stage (``stages.py``); together the time from taking the frame to handing the answer over.
    """

    number: int
    frame: Any
    answer: Any
    seconds: Mapping[str, float]


@dataclass(slots=True)
class _Passing:
    """A frame on its way."""

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


class Stream:
    """An iterator over :class:`Result`, in the order of the frames. ``Session.stream`` makes one.

    Threads and runners begin with the first frame that is asked for, and end with the last one, with an
    error, with ``close``, or when a ``for`` over the stream is left.

    Args:
        session: Must outlive the stream; it answers where a worker's runner fails.
        items: Frames uint8 [rows, columns, 3]; or what ``decode`` makes frames of; or feeds by input name.
            Read by one thread at a time.
        decode: Makes a frame of an item, in a worker. Work done while ``items`` is read is not spread.
        order: Of the frames' colours, ``rgb`` or ``bgr``.
        newest: Pass over frames that came while others were worked on; else every frame is answered.
        workers: How many; None: chosen by measuring. 1: three threads, one a stage, and the session's runner.
        metrics: Told each stage's time and each outcome.
        options: Of the decoding, instead of the card's.

    Raises:
        UsageError: ``workers`` is no whole number from 1.
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
        self._line = _Line(self._newest or iter(items), partial(_steps, session, decode, order, options))
        self._wished = workers
        self._plan: parallelism.Parallelism | None = None
        self._pid = os.getpid()
        self._started = self._closed = False

    @property
    def plan(self) -> parallelism.Parallelism | None:
        """How many workers with how many threads; None before the first frame."""
        return self._plan

    @property
    def dropped(self) -> int:
        """Frames passed over for newer ones."""
        return 0 if self._newest is None else self._newest.dropped

    @property
    def notes(self) -> tuple[str, ...]:
        """What went otherwise than planned: a runner that failed, and that the session answers for it."""
        return () if self._plan is None else self._plan.notes()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        if self._closed:
            raise StopIteration
        if self._started and self._pid != os.getpid():
            raise UsageError(
                "this stream was begun before os.fork(), and its threads stayed in the parent process: "
                "begin one in this process"
            )
        try:
            if not self._started:
                self._start()
            passing = self._line.fetch()
        except BaseException:  # it cannot start, or the user interrupts
            self.close()
            raise
        if passing is None:
            self.close()
            raise StopIteration
        if passing.problem is not None:
            self.close()
            if self._metrics is not None:
                self._metrics.answered("failed")
            raise passing.problem
        whole_s = time.perf_counter() - passing.began_s
        passing.seconds["waiting"] = max(0.0, whole_s - sum(passing.seconds.values()))
        if self._metrics is not None:
            self._metrics.took(passing.seconds, passing.engine)
            self._metrics.answered("ok", passing.fell_back)
        return Result(passing.number, passing.frame, passing.answer, passing.seconds)

    def close(self) -> None:
        """End all threads and free what they hold. Closing twice is fine."""
        if self._pid != os.getpid():
            self._closed = True
        if self._closed:
            return
        self._line.stop()
        if self._newest is not None:
            self._newest.close()
        self._line.join()
        if self._plan is not None:
            self._plan.close()
        self._closed = True  # not before: who is interrupted here may close again

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):  # __init__ had come so far
            self.close()

    def _start(self) -> None:
        self._started = True
        self._plan = parallelism.planned(self._session, self._wished)
        slots = self._plan.workers * (1 if self._newest is not None else AHEAD)
        self._line.start(self._plan.runners, slots)


class _Line:
    """The threads and what is on its way between them. It holds no reference to the Stream: one that nobody
    holds any more ends."""

    def __init__(
        self, items: Iterator[Any], steps: Callable[[SessionProtocol | Replica], Sequence[Step]]
    ) -> None:
        self._items, self._steps = items, steps
        self._reading = threading.Lock()
        self._lock, self._news = threading.Lock(), News()
        self._threads: list[Background] = []
        self._done: dict[int, _Passing] = {}
        self._slots = self._under_way = self._taken = self._fetched = 0
        self._end: int | None = None
        self._stopped = False

    def start(self, runners: Sequence[SessionProtocol | Replica], slots: int) -> None:
        """Begin, with one worker for each runner; with one, in three stages."""
        works: list[Callable[[], None]]
        if len(runners) > 1:
            self._slots = slots
            works = [partial(self._work, self._take, self._steps(each), self._finish) for each in runners]
        else:
            self._slots = slots + 2
            first: SimpleQueue[_Passing | None] = SimpleQueue()
            second: SimpleQueue[_Passing | None] = SimpleQueue()
            steps = self._steps(runners[0])
            works = [
                partial(self._work, self._take, steps[:2], first.put),
                partial(self._work, first.get, steps[2:3], second.put),
                partial(self._work, second.get, steps[3:], self._finish),
            ]
        for number, work in enumerate(works):
            self._threads.append(Background(work, f"edgekit-stream-{number}"))

    def fetch(self) -> _Passing | None:
        """The next frame in order; None where there is none any more."""
        while True:
            with self._lock:
                passing = self._done.pop(self._fetched, None)
                if passing is not None:
                    self._fetched += 1
                    self._under_way -= 1
                    self._news.tell()
                    return passing
                if self._stopped or (self._end is not None and self._fetched >= self._end):
                    return None
                news = self._news.waiter()
            news.acquire()

    def stop(self) -> None:
        """Take no more frames and skip what is not done yet."""
        with self._lock:
            self._stopped = True
            self._news.tell()

    def join(self) -> None:
        """Until every thread has ended: no longer than the source and one run take."""
        for thread in self._threads:
            thread.join()
        self._done.clear()
        self._items = iter(())  # a generator that nobody else holds ends here

    def _work(
        self,
        take: Callable[[], _Passing | None],
        steps: Sequence[Step],
        give: Callable[[_Passing | None], None],
    ) -> None:
        while (passing := take()) is not None:
            for stage, step in steps:
                if passing.problem is None and not self._stopped:
                    began = time.perf_counter()
                    try:
                        step(passing)
                    except BaseException as problem:  # raised where the answer is fetched
                        passing.problem = problem
                    passing.seconds[stage] = time.perf_counter() - began
            give(passing)
        give(None)

    def _take(self) -> _Passing | None:
        while True:
            with self._lock:
                if self._under_way < self._slots or self._stopped:
                    self._under_way += 1
                    break
                news = self._news.waiter()
            news.acquire()
        with self._reading:
            if self._stopped or self._end is not None:
                return None
            try:
                passing = _Passing(self._taken, next(self._items), time.perf_counter())
            except StopIteration:
                self._ends(self._taken)
                return None
            except BaseException as problem:  # of the source: raised behind the answers before it
                passing = _Passing(self._taken, None, time.perf_counter(), problem=problem)
                self._ends(self._taken + 1)
            self._taken += 1
            return passing

    def _ends(self, end: int) -> None:
        with self._lock:
            self._end = end
            self._news.tell()

    def _finish(self, passing: _Passing | None) -> None:
        if passing is not None:
            with self._lock:
                self._done[passing.number] = passing
                self._news.tell()


def _steps(
    session: SessionProtocol,
    decode: Callable[[Any], Any] | None,
    order: str,
    options: Mapping[str, Any],
    runner: SessionProtocol | Replica,
) -> Sequence[Step]:
    """What happens to a frame, stage by stage."""
    at_first = session.active.engine, bool(session.fallbacks)

    def decoded(passing: _Passing) -> None:
        if decode is not None:
            passing.frame = decode(passing.frame)

    def prepared(passing: _Passing) -> None:
        if isinstance(passing.frame, Mapping):
            passing.feeds = passing.frame
        else:
            passing.feeds, passing.placed = session.prepare(passing.frame, order)

    def inferred(passing: _Passing) -> None:
        assert passing.feeds is not None
        passing.answer = runner.run(passing.feeds)
        # Now, not when it is fetched: by then a later frame may have made the session fall back.
        now = session.active.engine, bool(session.fallbacks)
        own = isinstance(runner, Replica) and not runner.failed
        passing.engine, passing.fell_back = at_first if own else now
        passing.feeds = None

    def answered(passing: _Passing) -> None:
        if passing.placed is not None and session.card.task is not None:
            passing.answer = session.decode(passing.answer, passing.placed, **options)

    return (("decode", decoded), ("prepare", prepared), ("infer", inferred), ("decode_outputs", answered))
