"""A runner with a timeout.

    watched = Watched(open_runner, limit_s=0.05)
    watched.load(limit_s=60)    # DeadlineExceededError after a minute
    watched.run(feeds)          # DeadlineExceededError after 50 ms

No engine can be interrupted. So it loads and runs in a thread of its own. After a timeout that thread is
abandoned: nobody waits for it, and if it ever returns it closes its runner and ends. An engine that hangs
while holding the GIL stops every thread, the waiting one too; only a probe in a child process helps against
that. LiteRT holds the GIL while loading, ONNX Runtime and OpenVINO do not. The hand-over to the thread and
back costs about 20 us; a session without a deadline has no thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from edgekit.errors import EngineError
from edgekit.system.interrupts import Background
from edgekit.tensors import Array, Json

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

RESERVE_RATIO, RESERVE_S, RESERVE_SHARE = 1.5, 0.005, 0.05
"""Part of a deadline reserved for the fallback: its own time, with a margin for a machine that the stuck
engine keeps busy, and for the hand-over."""
LEAST_SHARE = 0.5
"""Share of a deadline that the first variant gets in any case."""
CLOSE_S = 5.0
"""Timeout for closing an idle runner."""

Replies = SimpleQueue[tuple["dict[str, Array] | None", "BaseException | None"]]
"""A queue for each request: after an interrupt, the next request does not see a stale result."""


class DeadlineExceededError(EngineError):
    """A load or a run timed out, and its thread was abandoned."""


def cutoff_s(deadline_s: float, fallback_s: float | None) -> float:
    """When to time a run out, so that the fallback still meets the deadline.

    Args:
        deadline_s: Of the whole request.
        fallback_s: Time of the fallback's run; None if there is none, or it is unknown.

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
        limit_s: Timeout of ``run``.

    Attributes:
        limit_s: The same; may be changed.
        began_s: When the last run began, on ``time.monotonic()``.
        stuck: It timed out and has not returned.
    """

    device = precision = ""

    def __init__(self, open_runner: Callable[[], Runner], limit_s: float = 1.0) -> None:
        self.limit_s = limit_s
        self.began_s = 0.0
        self._state = state = _WorkerState()
        self._thread = Background(partial(state.serve, open_runner), "edgekit-watched")

    @property
    def stuck(self) -> bool:
        return self._state.stuck

    @property
    def _runner(self) -> Runner:
        return self._state.runner

    def load(self, limit_s: float) -> None:
        """Wait until it is loaded.

        Raises:
            DeadlineExceededError: it took longer than ``limit_s``. It is unusable; close it.
            Exception: what opening it raised.
        """
        self._wait_for(self._state.loaded, limit_s, f"it did not load within {limit_s:g} s")
        self.device, self.precision = self._runner.device, self._runner.precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            DeadlineExceededError: it took longer than ``limit_s``. It is unusable; close it.
            Exception: what the runner raised.
        """
        state = self._state
        if state.stuck:
            raise DeadlineExceededError("it timed out in an earlier run")
        self.began_s = time.monotonic()
        replies: Replies = SimpleQueue()
        state.replies = replies
        state.requests.put((feeds, replies))
        return self._wait_for(replies, self.limit_s, f"no result after {1000 * self.limit_s:.0f} ms")

    def facts(self) -> dict[str, Json]:
        return self._runner.facts()

    def close(self) -> None:
        """Close the runner. A stuck one closes itself when it returns; this does not wait for it."""
        self._state.requests.put(None)
        if not self.stuck:
            self._thread.join(CLOSE_S)

    def __del__(self) -> None:
        if hasattr(self, "_state"):  # an interrupt may lose the object before anyone can close it
            self._state.requests.put(None)

    def _wait_for(self, replies: Replies, limit_s: float, overdue: str) -> dict[str, Array]:
        try:
            outputs, problem = replies.get(timeout=limit_s)
        except Empty:
            self._state.stuck = True
            raise DeadlineExceededError(overdue) from None
        if problem is not None:
            raise problem
        assert outputs is not None
        return outputs


class _WorkerState:
    """The thread's state. It does not reference the Watched: an unreferenced one is collected and closed."""

    def __init__(self) -> None:
        self.runner: Runner
        self.stuck = False
        self.requests: SimpleQueue[tuple[Mapping[str, Array], Replies] | None] = SimpleQueue()
        self.loaded: Replies = SimpleQueue()
        self.replies = self.loaded

    def serve(self, open_runner: Callable[[], Runner]) -> None:
        try:
            self.runner = open_runner()
        except BaseException as problem:  # an engine may throw anything
            self.loaded.put((None, problem))
            del problem
            self.requests.get()  # until it is closed
            self.stuck = False
            return
        self.loaded.put(({}, None))
        while (request := self.requests.get()) is not None:
            feeds, replies = request
            if replies is self.replies:  # else the caller was interrupted, and a later request is queued
                try:
                    replies.put((self.runner.run(feeds), None))
                except Exception as problem:  # an engine may throw anything
                    replies.put((None, problem))
            del request, feeds, replies  # do not keep the caller's arrays until the next run
        try:
            self.runner.close()
        finally:
            self.stuck = False
