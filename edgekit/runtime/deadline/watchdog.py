"""A runner with a timeout.

    watched = Watched(open_runner, limit_s=0.05)
    watched.load(limit_s=60)    # DeadlineExceededError after a minute
    watched.run(feeds)          # DeadlineExceededError after 50 ms

No engine can be interrupted. So it loads and runs in a thread of its own. A run that timed out goes on in
that thread: its answer may come late, and can be waited for (:func:`first_answer`). A runner that is closed
meanwhile closes itself once the run returns; nobody waits for it. An engine that hangs while holding the GIL
stops every thread, the waiting one too; only a probe in a child process helps against that. LiteRT holds the
GIL while loading, ONNX Runtime and OpenVINO do not. The hand-over to the thread and back costs about 20 us; a
session without a deadline has no thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from edgekit.errors import EngineError
from edgekit.system.interrupts import Background, in_engine
from edgekit.target.contract import Runner
from edgekit.tensor_spec import Array, Json

RESERVE_RATIO, RESERVE_S, RESERVE_SHARE = 1.5, 0.005, 0.05
"""Part of a deadline reserved for the fallback: its own time, with a margin for a machine that the stuck
engine keeps busy, and for the hand-over."""
LEAST_SHARE = 0.5
"""Share of a deadline that the first variant gets in any case."""
CLOSE_S = 5.0
"""Timeout for closing an idle runner."""

Reply = tuple["_WorkerState", "dict[str, Array] | None", "BaseException | None"]
Replies = SimpleQueue[Reply]
"""A queue for each request: after an interrupt, the next request does not see a stale result."""


class DeadlineExceededError(EngineError):
    """A load or a run timed out; its thread still has it."""


def cutoff_s(deadline_s: float, fallback_s: float | None) -> float:
    """Compute the time limit of a run, so that the fallback still meets the deadline.

    Args:
        fallback_s: Time of the fallback's run; None if there is none, or it is unknown.

    >>> round(cutoff_s(0.1, 0.01), 3), cutoff_s(0.1, 0.08), cutoff_s(0.1, None)
    (0.075, 0.05, 0.1)
    """
    if fallback_s is None:
        return deadline_s
    reserve_s = RESERVE_RATIO * fallback_s + RESERVE_S + RESERVE_SHARE * deadline_s
    return max(deadline_s - reserve_s, LEAST_SHARE * deadline_s)


class FirstAnswer(NamedTuple):
    """The end of :func:`first_answer`.

    Attributes:
        runner: The runner whose outputs these are, or None.
        problems: Exceptions of the others, or the timeout, by ``id`` of the runner.
    """

    runner: WatchedRunner | None
    outputs: dict[str, Array]
    problems: Mapping[int, Exception]


def first_answer(
    slow_runner: WatchedRunner,
    standby: WatchedRunner | None,
    feeds: Mapping[str, Array],
    check: Callable[[Mapping[str, Array]], None],
    limit_s: float,
) -> FirstAnswer:
    """Return the first good answer of a runner whose run timed out and of a standby, which is run now.

    Args:
        slow_runner: Its last run timed out.
        standby: An idle runner, or None.
    """
    replies = slow_runner.replies
    running = {id(slow_runner.state): slow_runner}
    if standby is not None:
        standby.begin(feeds, replies)
        running[id(standby.state)] = standby
    problems: dict[int, Exception] = {}
    end_s = time.monotonic() + limit_s
    while running:
        try:
            state, outputs, problem = _next_reply(replies, end_s - time.monotonic(), running.values())
        except Empty:
            for runner in running.values():
                runner.timed_out = True
                problems[id(runner)] = DeadlineExceededError(f"it hangs: no result after {limit_s:.3g} s")
            break
        runner = running.pop(id(state))
        try:
            if problem is not None:
                raise problem
            assert outputs is not None
            check(outputs)
        except Exception as wrong:  # an engine may throw anything
            problems[id(runner)] = wrong
        else:
            return FirstAnswer(runner, outputs, problems)
    return FirstAnswer(None, {}, problems)


def _next_reply(replies: Replies, limit_s: float, running: Collection[WatchedRunner]) -> Reply:
    return replies.get(timeout=max(0.0, limit_s))


class WatchedRunner:
    """A runner in a thread of its own. One call at a time, as with any runner; the first is ``load``.

    Attributes:
        limit_s: The same; may be changed.
        began_s: When the last run began, on ``time.monotonic()``.
        first_run_s: Time of the first run; 0 before it.
    """

    device = precision = ""

    def __init__(self, open_runner: Callable[[], Runner], limit_s: float = 1.0) -> None:
        self.limit_s = limit_s
        self.began_s = self.first_run_s = 0.0
        self.timed_out = False
        self.state = state = _WorkerState()
        self._thread = Background(partial(state.serve, open_runner), "edgekit-watched")

    @property
    def busy(self) -> bool:
        """Its thread has not returned from the last call, or has not closed it yet."""
        return self.state.answered < self.state.asked

    @property
    def is_stuck(self) -> bool:
        """It timed out and has not returned."""
        return self.timed_out and self.busy

    @property
    def replies(self) -> Replies:
        return self.state.replies

    @property
    def _runner(self) -> Runner:
        return self.state.runner

    def load(self, limit_s: float) -> None:
        """Wait until it is loaded.

        Raises:
            DeadlineExceededError: it took longer than ``limit_s``. It is unusable; close it.
            Exception: what opening it raised.
        """
        self._wait_for(self.state.loaded, limit_s, f"it did not load within {limit_s:g} s")
        self.device, self.precision = self._runner.device, self._runner.precision

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Raises:
            DeadlineExceededError: it took longer than ``limit_s``, or an earlier run has not returned yet.
            Exception: what the runner raised.
        """
        if self.is_stuck:
            raise DeadlineExceededError("it timed out in an earlier run")
        replies: Replies = SimpleQueue()
        self.begin(feeds, replies)
        return self._wait_for(replies, self.limit_s, f"no result after {1000 * self.limit_s:.0f} ms")

    def begin(self, feeds: Mapping[str, Array], replies: Replies) -> None:
        """Begin a run, whose answer arrives in ``replies``."""
        state = self.state
        self.timed_out = False
        self.began_s = time.monotonic()
        state.replies = replies
        state.asked += 1
        state.requests.put((feeds, replies, state.asked))

    def facts(self) -> dict[str, Json]:
        return self._runner.facts()

    def close(self) -> None:
        """Close the runner. A stuck one closes itself when it returns; this does not wait for it."""
        is_hung = self.is_stuck
        self.state.asked += 1
        self.state.requests.put(None)
        if not is_hung:
            self._thread.join(CLOSE_S)

    def __del__(self) -> None:
        if hasattr(self, "state"):  # an interrupt may lose the object before anyone can close it
            self.state.requests.put(None)

    def _wait_for(self, replies: Replies, limit_s: float, overdue: str) -> dict[str, Array]:
        try:
            _, outputs, problem = replies.get(timeout=limit_s)
        except Empty:
            self.timed_out = True
            raise DeadlineExceededError(overdue) from None
        if problem is not None:
            raise problem
        assert outputs is not None
        return outputs


class _WorkerState:
    """The thread's state. It does not reference the Watched: an unreferenced one is collected and closed.

    ``asked`` is the number of the last call and is written by the caller, ``answered`` by the thread.
    """

    def __init__(self) -> None:
        self.runner: Runner
        self.asked, self.answered = 1, 0  # the first is loading
        self.requests: SimpleQueue[tuple[Mapping[str, Array], Replies, int] | None] = SimpleQueue()
        self.loaded: Replies = SimpleQueue()
        self.replies = self.loaded

    def serve(self, open_runner: Callable[[], Runner]) -> None:
        try:
            with in_engine():
                self.runner = open_runner()
        except BaseException as problem:  # an engine may throw anything
            self.loaded.put((self, None, problem))
            del problem
            self.requests.get()  # until it is closed
            self.answered = self.asked
            return
        self.answered = 1
        self.loaded.put((self, {}, None))
        while (request := self.requests.get()) is not None:
            feeds, replies, number = request
            try:
                with in_engine():
                    # Else the caller was interrupted, and a later request is queued.
                    outputs = self.runner.run(feeds) if replies is self.replies else {}
            except Exception as problem:  # an engine may throw anything
                self.answered = number
                replies.put((self, None, problem))
            else:
                self.answered = number
                replies.put((self, outputs, None))
                del outputs
            del request, feeds, replies  # do not keep the caller's arrays until the next run
        try:
            with in_engine():
                self.runner.close()
        finally:
            self.answered = self.asked
