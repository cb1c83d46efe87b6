"""Prepare a variant in the background while another one is active.

Some engines are built on the device, which takes minutes; loading one takes seconds. A variant with the
option ``prepared_on_device``, of a target whose ``ENGINE`` says so too (target/contract.py), is opened
in a thread; the session polls it between requests. Such variants are not probed, so the bundle's option
alone is not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from edgekit.errors import EngineNotReady, reason_of
from edgekit.runtime import local_timings
from edgekit.runtime.fallback.load_order import PREPARED
from edgekit.runtime.session_state import log
from edgekit.system.interrupts import Background, in_engine, pass_on
from edgekit.target import registry
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant
    from edgekit.runtime.session_state import SessionOptions
    from edgekit.target.contract import Runner

FAR_SLOWER = 3.0
"""Ratio of times beyond which the noise of a background thread can't matter."""


def prepares_on_device(name: str) -> bool:
    """Return whether a target prepares its variants on the device, in a separate child process."""
    try:
        return registry.engine(name).ENGINE.prepared_on_device
    except Exception as problem:  # unknown target, or its module does not import
        pass_on(problem)
        return False


def variants_to_prepare(
    variants: Sequence[Variant], excluded: Collection[str], options: SessionOptions
) -> list[Variant]:
    """Return the variants to prepare: for each target the last one that is prepared on the device. A build
    lists the float variant first, then those that are smaller or faster.
    """
    chosen = [v for v in variants if options.variant in (None, v.name) and options.engine in (None, v.target)]
    chosen = [v for v in chosen if v.shrunk is None or v.name == options.variant]
    latest = {
        v.target: v for v in chosen if v.usable and v.options.get(PREPARED) and v.target not in excluded
    }
    return [variant for name, variant in latest.items() if prepares_on_device(name)]


class Preparations:
    """The variants of a session that are being prepared; ``waiting`` holds the unfinished ones."""

    def __init__(self) -> None:
        self.waiting: dict[str, Preparation] = {}
        self._finished: dict[str, str] = {}

    def begin(
        self,
        name: str,
        open_runner: Callable[[], Runner],
        feeds: Mapping[str, Array] | None = None,
        known_faster: bool = False,
    ) -> None:
        """Start a preparation. With ``feeds`` the runner is timed on them there, once it is open.

        Args:
            known_faster: It was measured already, so it need not be faster than the active one now.
        """
        self.waiting[name] = Preparation(open_runner, feeds, known_faster)

    def states(self) -> dict[str, str]:
        """Return the state of each variant, e.g. ``building``, including finished ones."""
        return self._finished | {name: pending.state for name, pending in list(self.waiting.items())}

    def any_done(self) -> bool:
        """Return whether :meth:`poll_finished` would return any variant now."""
        return any(pending.done for pending in self.waiting.values())

    def poll_finished(
        self, active: Runner | None, feeds: Mapping[str, Array]
    ) -> Iterator[tuple[str, Runner | None, str]]:
        """Yield the preparations that finished since: name, and the runner to activate, or None and why it is
        rejected.

        Args:
            active: The runner it must be faster than. None means no comparison.
        """
        for name, pending in list(self.waiting.items()):
            if not pending.done:
                continue
            del self.waiting[name]
            runner, reason = pending.take(), pending.reason
            if runner is not None and active is not None and not pending.known_faster:
                reason = _why_slower(runner, active, feeds, pending.run_ms)
            if runner is not None and reason:
                close_quietly(runner)
                runner = None
            yield name, runner, reason
            # Only now: if an interrupt prevents the switch, the variant is prepared again.
            self._finished[name] = f"failed: {reason}" if reason else "ready"

    def cancel(self) -> None:
        for pending in self.waiting.values():
            pending.cancel()
        self.waiting = {}


def close_quietly(runner: Runner | None) -> None:
    """Close a runner that is no longer needed; errors are logged."""
    if runner is None:
        return
    try:
        runner.close()
    except Exception as problem:  # an engine may throw anything
        pass_on(problem)
        log().warning("%s runner did not close: %s", runner.device, problem)


def _why_slower(runner: Runner, active: Runner, feeds: Mapping[str, Array], run_ms: float) -> str:
    """Return why a runner must not replace the active one; empty if it may. If it needed far longer in the
    background (``run_ms``; 0: not timed), it is not run here, where the app waits."""
    try:
        own_ms, active_ms = run_ms, local_timings.compare([active], feeds)[0] if run_ms else 0.0
        if own_ms <= FAR_SLOWER * active_ms:
            own_ms, active_ms = local_timings.compare([runner, active], feeds)
    except Exception as problem:  # an engine may throw anything
        pass_on(problem)
        return reason_of(problem)
    return (
        "" if own_ms < active_ms else f"slower here: {own_ms:.3g} ms, the active variant {active_ms:.3g} ms"
    )


class Preparation:
    """One variant being prepared.

    Args:
        feeds: Feeds on which it is timed. None means it is not timed.

    Attributes:
        run_ms: Fastest of some runs on ``feeds``; 0 if it was not timed.
    """

    def __init__(
        self,
        open_runner: Callable[[], Runner],
        feeds: Mapping[str, Array] | None = None,
        known_faster: bool = False,
    ) -> None:
        self.runner: Runner | None = None
        self.known_faster = known_faster
        self.run_ms = 0.0
        self._feeds = feeds
        self.reason = ""
        self.done = False
        self._open = open_runner
        self._stage: Callable[[], str] = lambda: "warming"
        self._cancelled = False
        self._lock = Lock()
        self._thread = Background(self._run, "edgekit-preparing")

    @property
    def state(self) -> str:
        """``waiting``, ``building``, ``verifying``, ``warming``, ``ready``, or ``failed: why``."""
        if not self.done:
            return self._stage()
        return f"failed: {self.reason}" if self.reason else "ready"

    def wait(self) -> None:
        """Wait until it is done."""
        self._thread.join()

    def take(self) -> Runner | None:
        """Return the runner, now owned by the caller; None if there is none."""
        with self._lock:
            runner, self.runner = self.runner, None
        return runner

    def cancel(self) -> None:
        """Close the runner, now or once it is opened. A running build goes on, for the next session."""
        self._cancelled = True
        close_quietly(self.take())

    def _run(self) -> None:
        try:
            runner = self._open_when_built()
            if self._feeds is not None:
                self._time(runner, self._feeds)
        except Exception as problem:  # an engine may throw anything
            self.reason = reason_of(problem)
        else:
            with self._lock:
                self.runner = runner
            if self._cancelled:
                self.cancel()
        self.done = True

    def _time(self, runner: Runner, feeds: Mapping[str, Array]) -> None:
        try:
            with in_engine():
                (self.run_ms,) = local_timings.compare([runner], feeds)
        except BaseException:
            close_quietly(runner)
            raise

    def _open_when_built(self) -> Runner:
        waited: list[object] = []
        while True:
            try:
                with in_engine():
                    return self._open()
            except EngineNotReady as not_ready:
                build = not_ready.build
                if build in waited:  # it was built, or is no longer wanted
                    raise
            waited.append(build)
            self._stage = partial(getattr, build, "stage")
            while not build.wait(0.2):
                if self._cancelled:
                    break
            self._stage = lambda: "warming"
