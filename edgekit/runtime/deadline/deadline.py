"""Deadlines: a watchdog times the active variant, and the next one is on standby, loaded and timed.

Only a loaded variant can run within milliseconds, so a deadline costs the memory of a second variant. Its
first load happens before the session is ready, later ones in the background.

A missed deadline is not a fault: the variant and its standby both go on, and the first good answer is taken,
however late. Only what hangs for HANG_S or longer has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edgekit.errors import UsageError, blame_of, reason_of
from edgekit.runtime.background import Preparation
from edgekit.runtime.deadline.watchdog import DeadlineExceededError, WatchedRunner, cutoff_s, first_answer
from edgekit.runtime.fallback.policy import Failure
from edgekit.runtime.session_state import StateCallback
from edgekit.system.memory import resident_bytes
from edgekit.target.contract import Runner
from edgekit.tensor_spec import Array, Signature

LOAD_S = 60.0
"""Minimum timeout for loading a variant, as in a probe; the request's deadline does not apply."""
FIRST_RUN_S = 60.0
"""Minimum timeout for a variant's first run; the request's deadline does not apply."""
HANG_S, HANG_RATIO = 10.0, 10.0
"""A run that has not returned after so long hangs: in seconds, or in deadlines or first runs of that variant
if these are longer. A machine that is busy, or swaps, takes several times as long as usual."""
LOADABLE_S = 1.0
"""The same, or one more deadline, if no standby runs and another variant may be loaded."""
ABANDONED_LIMIT = 3
"""Hung runs from which on no hung variant is retried: each holds a thread and a model."""


class LateAnswer(NamedTuple):
    """Result of a request that missed its deadline.

    Attributes:
        outputs: The first good answer. None means there was none.
        standby: The standby's variant if the outputs are its; "" if they are not.
        failed: The standby's variant and its failure, if it failed.
    """

    outputs: dict[str, Array] | None
    problem: Exception
    standby: str = ""
    failed: tuple[str, Failure] | None = None


class Deadline:
    """The deadline of one session, its standby variant and its hung runs.

    Attributes:
        late: Number of answers after their deadline.
        latest_s: Longest time of an answer after its deadline, from the beginning of the request.
    """

    def __init__(self, deadline_ms: float, shapes: Sequence[Signature]) -> None:
        if isinstance(deadline_ms, bool) or not isinstance(deadline_ms, (int, float)) or not deadline_ms > 0:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        self.deadline_s = deadline_ms / 1000
        self.late, self.latest_s = 0, 0.0
        self._notes: tuple[str, ...] = ()
        self._zeros = [{spec.name: spec.zeros() for spec in inputs} for inputs, _ in shapes]
        self._active: WatchedRunner | None = None
        self._standby_name = ""
        self._standby: WatchedRunner | None = None
        self._standby_load: Preparation | None = None
        self._took_s: dict[str, float] = {}
        self._memory_mb: dict[int, int] = {}
        self._abandoned: list[tuple[str, WatchedRunner]] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a message for each variant that hung, and one for late answers."""
        if not self.late:
            return self._notes
        answers = f"{self.late} answers were" if self.late > 1 else "1 answer was"
        limit_ms, latest_ms = 1000 * self.deadline_s, 1000 * self.latest_s
        message = f"{answers} later than the deadline of {limit_ms:g} ms; the latest took {latest_ms:.0f} ms"
        return (*self._notes, message)

    def watch(
        self, variant: str, open_runner: Callable[[], Runner], on_state: StateCallback
    ) -> WatchedRunner:
        """Load a variant under the watchdog, and run it once at each shape, because the first run is slower
        than later ones.

        Raises:
            DeadlineExceededError: loading or the first run timed out.
            Exception: what ``open_runner`` or the run raised.
        """
        before_mb = resident_bytes() >> 20
        watched = WatchedRunner(open_runner)
        try:
            watched.load(max(LOAD_S, self.deadline_s))
            on_state("warming", variant)
            watched.limit_s = max(FIRST_RUN_S, self.deadline_s)
            began_s = time.monotonic()
            watched.run(self._zeros[-1])
            watched.first_run_s = time.monotonic() - began_s
            for zeros in self._zeros[:-1]:
                watched.run(zeros)
        except BaseException:
            self.note_if_hung(variant, watched)
            watched.close()
            raise
        watched.limit_s = self.deadline_s
        self._memory_mb[id(watched)] = max(0, (resident_bytes() >> 20) - before_mb)
        return watched

    def set_active(self, runner: Runner | None) -> None:
        """Set the runner that gets requests first."""
        self._active = runner if isinstance(runner, WatchedRunner) else None
        self._set_limit()

    def load_standby(self, name: str, open_runner: Callable[[], Runner]) -> None:
        """Load a variant as the standby, in the background."""
        if name == self._standby_name:
            return
        self.drop_standby()
        self._standby_name = name

        def opened() -> Runner:
            runner = open_runner()
            began = time.monotonic()
            runner.run(self._zeros[-1])
            self._took_s[name] = time.monotonic() - began
            return runner

        self._standby_load = Preparation(opened)

    def wait_for_standby(self) -> tuple[str, str] | None:
        """Wait until the standby is loaded; returns as :meth:`poll_standby`."""
        if self._standby_load is not None:
            self._standby_load.wait()
        return self.poll_standby()

    @property
    def standby_pending(self) -> bool:
        """Return whether a standby is loading, or may be loaded once a late run returns."""
        return self._standby_load is not None or (not self._standby_name and self.hanging > 0)

    def poll_standby(self) -> tuple[str, str] | None:
        """Adopt a finished load. Returns the variant that failed to load and why; None if there is none."""
        if self._standby_load is None or not self._standby_load.done:
            return None
        load, self._standby_load = self._standby_load, None
        runner = load.take()
        self._standby = runner if isinstance(runner, WatchedRunner) else None
        self._set_limit()
        if self._standby is not None:
            return None
        name, self._standby_name = self._standby_name, ""
        return name, load.reason

    def take_standby(self, name: str) -> WatchedRunner | None:
        """Return the standby, if it is this variant, once it is loaded; the caller then owns it."""
        if name == self._standby_name and self._standby_load is not None:
            self._standby_load.wait()  # sooner than another load
        self.poll_standby()
        if name != self._standby_name or self._standby is None:
            return None
        standby, self._standby, self._standby_name = self._standby, None, ""
        return standby

    def timed_out(self, problem: Exception) -> bool:
        """Return whether a failure is a timeout."""
        return isinstance(problem, DeadlineExceededError)

    def late_answer(
        self,
        active: Runner | None,
        problem: Exception,
        feeds: Mapping[str, Array],
        check: Callable[[Mapping[str, Array]], None],
        others: bool,
    ) -> LateAnswer:
        """Return the first good answer of the active runner, if ``problem`` is that it timed out, and of an
        idle standby, which it starts."""
        if not isinstance(active, WatchedRunner) or not isinstance(problem, DeadlineExceededError):
            return LateAnswer(None, problem)
        self.poll_standby()
        name, standby = self._standby_name, self._standby
        if standby is not None and standby.busy:  # with a request that the active one answered first
            standby = None
        usual_s = max(runner.first_run_s for runner in (active, standby) if runner is not None)
        limit_s = max(HANG_S, HANG_RATIO * max(self.deadline_s, usual_s))
        if others and standby is None:  # a load answers sooner than a run that hangs
            limit_s = max(LOADABLE_S, self.deadline_s, HANG_RATIO * usual_s)
        first = first_answer(active, standby, feeds, check, limit_s)
        failed = None
        if standby is not None and (wrong := first.problems.get(id(standby))) is not None:
            is_hung = self.note_if_hung(name, standby)
            self.drop_standby()
            failed = name, Failure(reason_of(wrong), still_running=is_hung, blame=blame_of(wrong))
        return LateAnswer(
            None if first.runner is None else first.outputs,
            first.problems.get(id(active), problem),
            name if first.runner is not None and first.runner is standby else "",
            failed,
        )

    @staticmethod
    def began_s(runner: Runner | None) -> float:
        """Return the time on ``time.monotonic()`` at which a request began: that of this runner's last run,
        or now."""
        return runner.began_s if isinstance(runner, WatchedRunner) else time.monotonic()

    def note_if_late(self, began_s: float) -> None:
        """Count the answer of a request that began then, if it is late now."""
        took_s = time.monotonic() - began_s
        if took_s > self.deadline_s:
            self.late, self.latest_s = self.late + 1, max(self.latest_s, took_s)

    def note_if_hung(self, variant: str, runner: Runner | None) -> bool:
        """Return whether a failed runner has not returned; if so, count and note it."""
        if not isinstance(runner, WatchedRunner) or not runner.is_stuck:
            return False
        self._abandoned.append((variant, runner))
        size = f"its {mb} MB" if (mb := self._memory_mb.pop(id(runner), 0)) else "its memory"
        note = f"{variant} timed out and was abandoned; {size} and its thread are freed when it returns"
        if note not in self._notes:
            self._notes += (note,)
        return True

    @property
    def hanging(self) -> int:
        """Runs that timed out and have not returned."""
        return sum(runner.is_stuck for _, runner in self._abandoned)

    @property
    def hanging_variants(self) -> list[str]:
        """Return the variant of each such run."""
        self._abandoned = [(name, runner) for name, runner in self._abandoned if runner.is_stuck]
        return [name for name, _ in self._abandoned]

    @property
    def may_retry_hung(self) -> bool:
        """Return whether hung variants may be retried."""
        return self.hanging < ABANDONED_LIMIT

    def drop_standby(self) -> None:
        """Release the standby, or cancel its load."""
        if self._standby_load is not None:
            self._standby_load.cancel()
        if self._standby is not None:
            self._standby.close()
        self._standby_load = self._standby = None
        self._standby_name = ""

    def _set_limit(self) -> None:
        if self._active is not None:
            took_s = self._took_s.get(self._standby_name) if self._standby is not None else None
            self._active.limit_s = cutoff_s(self.deadline_s, took_s)
