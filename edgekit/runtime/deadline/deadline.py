"""Answers within a deadline: the active variant is watched, and the next one stands by, loaded and timed.

Only what is loaded can answer in milliseconds, so a deadline costs the memory of a second variant. Its first
load happens before the session is ready, every later one in the background.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from edgekit.errors import UsageError
from edgekit.runtime.deadline.watchdog import Watched, cutoff_s
from edgekit.runtime.device_builds.memory import resident_mb
from edgekit.runtime.loading.background import Preparation
from edgekit.runtime.session_state import Tell
from edgekit.target.contract import Runner
from edgekit.tensors import TensorSpec

LOAD_S = 60.0
"""The least that a variant has to be loaded, as in a probe: loading is not a request's either."""
FIRST_RUN_S = 10.0
"""The least that a variant has for the first run of its life, which is not a request's."""
LEFT_LIMIT = 3
"""Runs left behind beyond which nothing that hangs is tried again: each holds a thread and a model."""


class Deadline:
    """The deadline of one session, what stands by for it, and what was left behind.

    Attributes:
        deadline_s: Of a whole answer.
        notes: What was left behind, in words.
    """

    def __init__(self, deadline_ms: float, inputs: Sequence[TensorSpec]) -> None:
        if isinstance(deadline_ms, bool) or not isinstance(deadline_ms, (int, float)) or not deadline_ms > 0:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        self.deadline_s = deadline_ms / 1000
        self.notes: tuple[str, ...] = ()
        self._zeros = {spec.name: spec.zeros() for spec in inputs}
        self._active: Watched | None = None
        self._name = ""
        self._standby: Watched | None = None
        self._coming: Preparation | None = None
        self._took_s: dict[str, float] = {}
        self._holds_mb: dict[int, int] = {}
        self._left: list[Watched] = []

    def watch(self, variant: str, open_runner: Callable[[], Runner], tell: Tell) -> Watched:
        """Load a variant under watch, and run it once: the first run is slower than all others.

        Raises:
            Overdue: it was not loaded, or has not run, in time.
            Exception: what ``open_runner`` or the run raised.
        """
        before_mb = resident_mb(os.getpid())
        watched = Watched(open_runner)
        try:
            watched.load(max(LOAD_S, self.deadline_s))
            tell("warming", variant)
            watched.limit_s = max(FIRST_RUN_S, self.deadline_s)
            watched.run(self._zeros)
        except BaseException:
            self.left_behind(variant, watched)
            watched.close()
            raise
        watched.limit_s = self.deadline_s
        self._holds_mb[id(watched)] = max(0, resident_mb(os.getpid()) - before_mb)
        return watched

    def serves(self, runner: Runner | None) -> None:
        """From now on this one answers first."""
        self._active = runner if isinstance(runner, Watched) else None
        self._set_limit()

    def stand_by(self, name: str, open_runner: Callable[[], Runner]) -> None:
        """Have a variant ready: at once where none has stood by before, else in the background."""
        if name == self._name:
            return
        self.give_up()
        self._name = name

        def opened() -> Runner:
            runner = open_runner()
            began = time.monotonic()
            runner.run(self._zeros)
            self._took_s[name] = time.monotonic() - began
            return runner

        self._coming = Preparation(opened)

    def wait(self) -> tuple[str, str] | None:
        """Wait for what was asked to stand by; else as :meth:`look`."""
        if self._coming is not None:
            self._coming.wait()
        return self.look()

    @property
    def awaiting(self) -> bool:
        return self._coming is not None

    def look(self) -> tuple[str, str] | None:
        """Take what is ready by now. The variant that cannot stand by and why; None where there is none."""
        if self._coming is None or not self._coming.done:
            return None
        coming, self._coming = self._coming, None
        runner = coming.take()
        self._standby = runner if isinstance(runner, Watched) else None
        self._set_limit()
        if self._standby is not None:
            return None
        name, self._name = self._name, ""
        return name, coming.why

    def take(self, name: str) -> Watched | None:
        """The variant that stands by, if it is this one: the caller's from now on."""
        self.look()
        if name != self._name or self._standby is None:
            return None
        standby, self._standby, self._name = self._standby, None, ""
        return standby

    def left_behind(self, variant: str, runner: Runner | None) -> bool:
        """Whether a runner that failed hangs, which is then counted and noted."""
        if not isinstance(runner, Watched) or not runner.stuck:
            return False
        self._left.append(runner)
        size = f"its {mb} MB" if (mb := self._holds_mb.pop(id(runner), 0)) else "its memory"
        note = f"{variant} hangs and was left behind; {size} and its thread are freed if it comes back"
        if note not in self.notes:
            self.notes += (note,)
        return True

    @property
    def hanging(self) -> int:
        """Runs that were left behind and have not come back."""
        self._left = [runner for runner in self._left if runner.stuck]
        return len(self._left)

    @property
    def may_hang_again(self) -> bool:
        """Whether what hung may be tried again."""
        return self.hanging < LEFT_LIMIT

    def give_up(self) -> None:
        """Nothing needs to stand by any more."""
        if self._coming is not None:
            self._coming.give_up()
        if self._standby is not None:
            self._standby.close()
        self._coming = self._standby = None
        self._name = ""

    def _set_limit(self) -> None:
        if self._active is not None:
            took_s = self._took_s.get(self._name) if self._standby is not None else None
            self._active.limit_s = cutoff_s(self.deadline_s, took_s)
