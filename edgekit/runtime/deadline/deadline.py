"""Deadlines: a watchdog times the active variant, and the next one is on standby, loaded and timed.

Only a loaded variant can run within milliseconds, so a deadline costs the memory of a second variant. Its
first load happens before the session is ready, later ones in the background.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.runtime.deadline.watchdog import Watched, cutoff_s
from edgekit.runtime.device_builds.memory import resident_mb
from edgekit.runtime.loading.background import Preparation
from edgekit.runtime.session_state import StateCallback
from edgekit.tensors import TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

LOAD_S = 60.0
"""Minimum timeout for loading a variant, as in a probe; the request's deadline does not apply."""
FIRST_RUN_S = 10.0
"""Minimum timeout for a variant's first run; the request's deadline does not apply."""
ABANDONED_LIMIT = 3
"""Hung runs from which on no hung variant is retried: each holds a thread and a model."""


class Deadline:
    """The deadline of one session, its standby variant and its hung runs.

    Attributes:
        deadline_s: Of a whole request.
        notes: A message for each variant that hung.
    """

    def __init__(self, deadline_ms: float, inputs: Sequence[TensorSpec]) -> None:
        if isinstance(deadline_ms, bool) or not isinstance(deadline_ms, (int, float)) or not deadline_ms > 0:
            raise UsageError(f"deadline_ms must be a number above 0, not {deadline_ms!r}")
        self.deadline_s = deadline_ms / 1000
        self.notes: tuple[str, ...] = ()
        self._zeros = {spec.name: spec.zeros() for spec in inputs}
        self._active: Watched | None = None
        self._standby_name = ""
        self._standby: Watched | None = None
        self._standby_load: Preparation | None = None
        self._took_s: dict[str, float] = {}
        self._memory_mb: dict[int, int] = {}
        self._abandoned: list[Watched] = []

    def watch(self, variant: str, open_runner: Callable[[], Runner], on_state: StateCallback) -> Watched:
        """Load a variant under the watchdog, and run it once, because the first run is slower than later
        ones.

        Raises:
            DeadlineExceededError: loading or the first run timed out.
            Exception: what ``open_runner`` or the run raised.
        """
        before_mb = resident_mb(os.getpid())
        watched = Watched(open_runner)
        try:
            watched.load(max(LOAD_S, self.deadline_s))
            on_state("warming", variant)
            watched.limit_s = max(FIRST_RUN_S, self.deadline_s)
            watched.run(self._zeros)
        except BaseException:
            self.note_if_hung(variant, watched)
            watched.close()
            raise
        watched.limit_s = self.deadline_s
        self._memory_mb[id(watched)] = max(0, resident_mb(os.getpid()) - before_mb)
        return watched

    def set_active(self, runner: Runner | None) -> None:
        """Set the runner that gets requests first."""
        self._active = runner if isinstance(runner, Watched) else None
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
            runner.run(self._zeros)
            self._took_s[name] = time.monotonic() - began
            return runner

        self._standby_load = Preparation(opened)

    def wait_for_standby(self) -> tuple[str, str] | None:
        """Wait until the standby is loaded; returns as :meth:`poll_standby`."""
        if self._standby_load is not None:
            self._standby_load.wait()
        return self.poll_standby()

    @property
    def loading_standby(self) -> bool:
        return self._standby_load is not None

    def poll_standby(self) -> tuple[str, str] | None:
        """Adopt a finished load. Returns the variant that failed to load and why; None if there is none."""
        if self._standby_load is None or not self._standby_load.done:
            return None
        load, self._standby_load = self._standby_load, None
        runner = load.take()
        self._standby = runner if isinstance(runner, Watched) else None
        self._set_limit()
        if self._standby is not None:
            return None
        name, self._standby_name = self._standby_name, ""
        return name, load.why

    def take_standby(self, name: str) -> Watched | None:
        """The standby, if it is this variant; the caller then owns it."""
        self.poll_standby()
        if name != self._standby_name or self._standby is None:
            return None
        standby, self._standby, self._standby_name = self._standby, None, ""
        return standby

    def note_if_hung(self, variant: str, runner: Runner | None) -> bool:
        """Whether a failed runner hangs; if so, it is counted and noted."""
        if not isinstance(runner, Watched) or not runner.stuck:
            return False
        self._abandoned.append(runner)
        size = f"its {mb} MB" if (mb := self._memory_mb.pop(id(runner), 0)) else "its memory"
        note = f"{variant} hangs and was abandoned; {size} and its thread are freed if it returns"
        if note not in self.notes:
            self.notes += (note,)
        return True

    @property
    def hanging(self) -> int:
        """Runs that timed out and have not returned."""
        self._abandoned = [runner for runner in self._abandoned if runner.stuck]
        return len(self._abandoned)

    @property
    def may_retry_hung(self) -> bool:
        """Whether hung variants may be retried."""
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
