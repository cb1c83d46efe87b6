"""Where a session stands on its way to answering."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from logging import Logger

STATES = ("verifying", "loading", "warming", "ready", "closed")
"""verifying: a variant's files are hashed, unpacked and, where asked for, tried in a child process.
loading: its engine loads it. warming: it runs once before its first request. ready: a variant answers."""

Tell = Callable[[str, str], None]


class States:
    """The state now; each change is logged and told.

    Args:
        tell: Called with the new state and the variant it is about, in the thread that makes the change and
            while the session waits: it must return at once and not call the session.
    """

    def __init__(self, tell: Tell | None = None) -> None:
        self.now = STATES[0]
        self._tell = tell

    def enter(self, state: str, variant: str = "") -> None:
        """Go over to a state."""
        self.now = state
        if "logging" in sys.modules:  # an app that never imported it reads no log, and it costs 5 ms
            log().info("%s %s", state, variant)
        if self._tell is not None:
            try:
                self._tell(state, variant)
            except Exception as problem:  # the app's own; a request must not fail for it
                log().warning("on_state raised %s: %s", type(problem).__name__, problem)


def in_silence(state: str, variant: str) -> None:
    """Tells nobody."""


def log() -> Logger:
    """The runtime's log."""
    import logging  # here: most sessions have nothing to log

    return logging.getLogger("edgekit.runtime")


class Active(NamedTuple):
    """What runs: the variant's name, the engine and its version, the device, the precision it executes."""

    variant: str
    engine: str
    device: str
    precision: str
