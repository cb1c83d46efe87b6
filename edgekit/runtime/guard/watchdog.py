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

import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue

from edgekit.errors import EngineError
from edgekit.target import Array, Json, Runner

RESERVE_RATIO, RESERVE_S, RESERVE_SHARE = 1.5, 0.005, 0.05
"""Kept of a deadline for the fallback: its own time, with room for a machine that the stuck engine keeps
busy, and for the hand-over."""
LEAST_SHARE = 0.5
"""Of a deadline that the first variant has in any case."""
CLOSE_S = 5.0
"""How long a runner that does nothing may take to close."""

Answer = tuple["dict[str, Array] | None", "BaseException | None"]


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
        self.stuck = False
        self._open = open_runner
        self._runner: Runner
        self._asked: SimpleQueue[Mapping[str, Array] | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="edgekit-watched", daemon=True)
        self._thread.start()

    def load(self, limit_s: float) -> None:
        """Wait until it is loaded.

        Raises:
            Overdue: it took longer than ``limit_s``, and cannot be used; close it.
            Exception: what opening it raised.
        """
        self._answer(limit_s, f"it was not loaded after {limit_s:g} s")
        self.device, self.precision = self._runner.device, self._runner.precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            Overdue: it took longer than ``limit_s``. The runner cannot be used any more; close it.
            Exception: what the runner raised.
        """
        if self.stuck:
            raise Overdue("it was left behind in an earlier run")
        self.began_s = time.monotonic()
        self._asked.put(feeds)
        return self._answer(self.limit_s, f"no answer after {1000 * self.limit_s:.0f} ms")

    def facts(self) -> dict[str, Json]:
        return self._runner.facts()

    def close(self) -> None:
        """Close the runner; one that is stuck closes when it comes back, and nobody waits for that."""
        self._asked.put(None)
        if not self.stuck:
            self._thread.join(CLOSE_S)

    def _answer(self, limit_s: float, overdue: str) -> dict[str, Array]:
        try:
            answers, problem = self._answers.get(timeout=limit_s)
        except Empty:
            self.stuck = True
            raise Overdue(overdue) from None
        if problem is not None:
            raise problem
        assert answers is not None
        return answers

    def _serve(self) -> None:
        try:
            self._runner = self._open()
        except BaseException as problem:  # an engine may throw anything
            self._answers.put((None, problem))
            del problem
            self._asked.get()  # until it is closed
            self.stuck = False
            return
        self._answers.put(({}, None))
        while (feeds := self._asked.get()) is not None:
            try:
                self._answers.put((self._runner.run(feeds), None))
            except Exception as problem:  # an engine may throw anything
                self._answers.put((None, problem))
            del feeds  # the caller's arrays are not kept until the next run
        try:
            self._runner.close()
        finally:
            self.stuck = False
