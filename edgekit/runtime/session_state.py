"""A session's options, its states on its way to running, and what is active."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from edgekit.system.interrupts import pass_on

if TYPE_CHECKING:
    from logging import Logger

STATES = ("verifying", "loading", "warming", "ready", "closed")
"""verifying: a variant's files are hashed, unpacked and, if requested, probed in a child process.
loading: its engine loads it. warming: it runs once before its first request. ready: a variant is active."""

StateCallback = Callable[[str, str], None]


class States:
    """The current state; each change is logged and passed to the callback.

    Args:
        on_state: Called with the new state and the variant, in the thread that makes the change and while the
            session waits: it must return at once and not call the session.
    """

    def __init__(self, on_state: StateCallback | None = None) -> None:
        self.now = STATES[0]
        self._on_state = on_state

    def enter(self, state: str, variant: str = "") -> None:
        """Change to a state."""
        self.now = state
        if "logging" in sys.modules:  # importing it costs 5 ms, and an app that has not cannot read the log
            log().info("%s %s", state, variant)
        if self._on_state is not None:
            try:
                self._on_state(state, variant)
            except Exception as problem:  # the callback's; the request must not fail for it
                pass_on(problem)
                log().warning("on_state raised %s: %s", type(problem).__name__, problem)


def ignore_state(state: str, variant: str) -> None:
    """Ignore a change of state."""


def log() -> Logger:
    """Return the runtime's logger."""
    import logging  # here: most sessions log nothing

    return logging.getLogger("edgekit.runtime")


class SessionOptions(NamedTuple):
    """The options of a session; see Session."""

    engine: str | None = None
    variant: str | None = None
    strict: bool = False
    threads: int = 1
    probe: bool = False
    warm: bool = False
    device: str = "cpu"
    allow_split: bool = False
    measure: bool = True


class Active(NamedTuple):
    """Active variant: its name, the engine and its version, the device, the precision that it executes."""

    variant: str
    engine: str
    device: str
    precision: str
