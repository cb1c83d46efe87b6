"""A variant made ready in the background while another one serves.

Some engines are built on the device that runs them, which takes minutes; loading one takes seconds. A variant
whose options say ``prepared_on_device``, of a target whose ``ENGINE`` says so too (target/contract.py), is
opened in a thread; a session looks between two requests whether it is there. Such variants are not probed,
so a bundle's word alone is not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from edgekit.errors import EngineNotReady, reason_of
from edgekit.runtime.loading import local_timings
from edgekit.runtime.session_state import log
from edgekit.system.interrupts import Background
from edgekit.target import registry
from edgekit.target.contract import Runner
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.bundle.variant import Variant

OPTION = "prepared_on_device"


def on_device(name: str) -> bool:
    """Whether a target makes its variants ready on the device, in a child process of its own."""
    try:
        return registry.engine(name).ENGINE.prepared_on_device
    except Exception:  # there is no such target here, or its module does not load
        return False


def worth_it(variants: Sequence[Variant], out: Collection[str], asked: str | None) -> list[Variant]:
    """The variants to prepare: of each target the last one prepared on the device, for a build makes
    the float one first, and of it those that are smaller or faster.

    Args:
        variants: Of the bundle.
        out: Targets that are active or not installed.
        asked: The only target that is wanted; None: any.
    """
    found = {v.target: v for v in variants if v.usable and v.options.get(OPTION) and v.target not in out}
    return [variant for name, variant in found.items() if asked in (None, name) and on_device(name)]


class Preparations:
    """The variants of a session that are on their way. ``waiting`` while there are some."""

    def __init__(self) -> None:
        self.waiting: dict[str, Preparation] = {}
        self._ended: dict[str, str] = {}

    def begin(self, name: str, open_runner: Callable[[], Runner]) -> None:
        self.waiting[name] = Preparation(open_runner)

    def states(self) -> dict[str, str]:
        """Variant -> ``building`` ..., those that ended too."""
        return self._ended | {name: each.state for name, each in list(self.waiting.items())}

    def any_done(self) -> bool:
        """Whether :meth:`settled` would give any now."""
        return any(each.done for each in self.waiting.values())

    def settled(
        self, active: Runner | None, feeds: Mapping[str, Array]
    ) -> Iterator[tuple[str, Runner | None, str]]:
        """Those that ended since: name, the runner that takes over, or None and why it must not.

        Args:
            active: What a runner must be faster than; None: nothing.
            feeds: What both are timed on.
        """
        for name, each in list(self.waiting.items()):
            if not each.done:
                continue
            del self.waiting[name]
            runner, why = each.take(), each.why
            if runner is not None and active is not None:
                why = _slower(runner, active, feeds)
            if runner is not None and why:
                closed(runner)
                runner = None
            yield name, runner, why
            # Not before: what an interrupt loses on its way did not end, and is begun again.
            self._ended[name] = f"failed: {why}" if why else "ready"

    def give_up(self) -> None:
        for each in self.waiting.values():
            each.give_up()
        self.waiting = {}


def closed(runner: Runner | None) -> None:
    """Close a runner that nobody needs any more, whatever it says to that."""
    if runner is None:
        return
    try:
        runner.close()
    except Exception as problem:  # an engine may throw anything
        log().warning("%s runner did not close: %s", runner.device, problem)


def _slower(runner: Runner, active: Runner, feeds: Mapping[str, Array]) -> str:
    """Why a runner must not take over from the active one; empty where it may."""
    try:
        own_ms, active_ms = local_timings.compare((runner, active), feeds)
    except Exception as problem:  # an engine may throw anything
        return reason_of(problem)
    return "" if own_ms < active_ms else f"slower here: {own_ms:.3g} ms, the active one {active_ms:.3g} ms"


class Preparation:
    """One variant on its way.

    Args:
        open_runner: Opens it; may raise EngineNotReady, then its build is waited for.
    """

    def __init__(self, open_runner: Callable[[], Runner]) -> None:
        self.runner: Runner | None = None
        self.why = ""
        self.done = False
        self._open = open_runner
        self._stage: Callable[[], str] = lambda: "warming"
        self._given_up = False
        self._lock = Lock()
        self._thread = Background(self._run, "edgekit-preparing")

    @property
    def state(self) -> str:
        """``waiting``, ``building``, ``verifying``, ``warming``, ``ready``, or ``failed: why``."""
        if not self.done:
            return self._stage()
        return f"failed: {self.why}" if self.why else "ready"

    def wait(self) -> None:
        """Until it is done."""
        self._thread.join()

    def take(self) -> Runner | None:
        """The runner, which is the caller's from now on; None where there is none."""
        with self._lock:
            runner, self.runner = self.runner, None
        return runner

    def give_up(self) -> None:
        """Nobody wants it any more: it is closed, now or once it is there. A build goes on, for the next."""
        self._given_up = True
        closed(self.take())

    def _run(self) -> None:
        try:
            runner = self._opened()
        except Exception as problem:  # an engine may throw anything
            self.why = reason_of(problem)
        else:
            with self._lock:
                self.runner = runner
            if self._given_up:
                self.give_up()
        self.done = True

    def _opened(self) -> Runner:
        try:
            return self._open()
        except EngineNotReady as not_ready:
            build = not_ready.build
            self._stage = lambda: build.stage
        while not build.wait(0.2):
            if self._given_up:
                break
        self._stage = lambda: "warming"
        return self._open()
