"""A runner that is waited for no longer than agreed.

    watched = Watched(open_runner, limit_s=0.05)
    watched.load(limit_s=60)    # Overdue after a minute
    watched.run(feeds)          # Overdue after 50 ms

No engine can be interrupted. So it loads and runs in a thread of its own, and where it takes too long that
thread is left behind with it: nobody waits for it any more, and if it ever comes back it closes its runner
and ends. An engine that hangs and keeps Python's lock stops every thread, this watch's too: only a probe, in
a process of its own, helps against that. LiteRT keeps it while it loads, ONNX Runtime and OpenVINO don't.
Handing a run to the thread and its answer back costs some 20 us; who sets no deadline has no thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue

from edgekit.errors import EngineError
from edgekit.system.interrupts import Background
from edgekit.target.contract import Runner
from edgekit.tensors import Array, Json

RESERVE_RATIO, RESERVE_S, RESERVE_SHARE = 1.5, 0.005, 0.05
"""Kept of a deadline for the fallback: its own time, with room for a machine that the stuck engine keeps
busy, and for the hand-over."""
LEAST_SHARE = 0.5
"""Of a deadline that the first variant has in any case."""
CLOSE_S = 5.0
"""How long a runner that does nothing may take to close."""

Answers = SimpleQueue[tuple["dict[str, Array] | None", "BaseException | None"]]
"""Where one request's answer comes: a caller who was interrupted does not find it at the next request."""


class Overdue(EngineError):  # noqa: N818  (it says what it is)
    """A run took longer than agreed and was left behind."""


def cutoff_s(deadline_s: float, fallback_s: float | None) -> float:
    """When to give a run up, so that the fallback still answers in time.

    Args:
        deadline_s: Of the whole answer.
        fallback_s: What the fallback takes; None: there is none, or nobody knows.

    >>> round(cutoff_s(0.1, 0.01), 3), cutoff_s(0.1, 0.08), cutoff_s(0.1, None)
    (0.075, 0.05, 0.1)
    """
    if fallback_s is None:
        return deadline_s
    reserve_s = RESERVE_RATIO * fallback_s + RESERVE_S + RESERVE_SHARE * deadline_s
    return max(deadline_s - reserve_s, LEAST_SHARE * deadline_s)


class Watched:
    """A runner in a thread of its own. One call at a time, as with any runner; the first is ``load``.

    Args:
        open_runner: Opens it, in that thread.
        limit_s: How long ``run`` waits.

    Attributes:
        limit_s: The same, to be changed.
        began_s: When the last run began, on ``time.monotonic()``.
        stuck: It was left behind and has not come back.
    """

    device = precision = ""

    def __init__(self, open_runner: Callable[[], Runner], limit_s: float = 1.0) -> None:
        self.limit_s = limit_s
        self.began_s = 0.0
        self._own = own = _Own()
        self._thread = Background(partial(own.serve, open_runner), "edgekit-watched")

    @property
    def stuck(self) -> bool:
        return self._own.stuck

    @property
    def _runner(self) -> Runner:
        return self._own.runner

    def load(self, limit_s: float) -> None:
        """Wait until it is loaded.

        Raises:
            Overdue: it took longer than ``limit_s``, and cannot be used; close it.
            Exception: what opening it raised.
        """
        self._answer(self._own.loaded, limit_s, f"it was not loaded after {limit_s:g} s")
        self.device, self.precision = self._runner.device, self._runner.precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            Overdue: it took longer than ``limit_s``. The runner cannot be used any more; close it.
            Exception: what the runner raised.
        """
        own = self._own
        if own.stuck:
            raise Overdue("it was left behind in an earlier run")
        self.began_s = time.monotonic()
        answers: Answers = SimpleQueue()
        own.answers = answers
        own.asked.put((feeds, answers))
        return self._answer(answers, self.limit_s, f"no answer after {1000 * self.limit_s:.0f} ms")

    def facts(self) -> dict[str, Json]:
        return self._runner.facts()

    def close(self) -> None:
        """Close the runner; one that is stuck closes when it comes back, and nobody waits for that."""
        self._own.asked.put(None)
        if not self.stuck:
            self._thread.join(CLOSE_S)

    def __del__(self) -> None:
        if hasattr(self, "_own"):  # an interrupt may lose it before anybody can close it
            self._own.asked.put(None)

    def _answer(self, answers: Answers, limit_s: float, overdue: str) -> dict[str, Array]:
        try:
            outputs, problem = answers.get(timeout=limit_s)
        except Empty:
            self._own.stuck = True
            raise Overdue(overdue) from None
        if problem is not None:
            raise problem
        assert outputs is not None
        return outputs


class _Own:
    """What the thread has. It does not hold the Watched: one that nobody holds any more is closed."""

    def __init__(self) -> None:
        self.runner: Runner
        self.stuck = False
        self.asked: SimpleQueue[tuple[Mapping[str, Array], Answers] | None] = SimpleQueue()
        self.loaded: Answers = SimpleQueue()
        self.answers = self.loaded

    def serve(self, open_runner: Callable[[], Runner]) -> None:
        try:
            self.runner = open_runner()
        except BaseException as problem:  # an engine may throw anything
            self.loaded.put((None, problem))
            del problem
            self.asked.get()  # until it is closed
            self.stuck = False
            return
        self.loaded.put(({}, None))
        while (request := self.asked.get()) is not None:
            feeds, answers = request
            if answers is self.answers:  # else nobody waits any more, for a later one was asked
                try:
                    answers.put((self.runner.run(feeds), None))
                except Exception as problem:  # an engine may throw anything
                    answers.put((None, problem))
            del request, feeds, answers  # the caller's arrays are not kept until the next run
        try:
            self.runner.close()
        finally:
            self.stuck = False
