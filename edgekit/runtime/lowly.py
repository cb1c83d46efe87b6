"""A child that stands back: what a builder calls first."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that this process gets when its parent dies."""


def stand_back() -> None:
    """Lowest priority, the first to go when memory runs out, and gone when the app is. Linux only."""
    with contextlib.suppress(OSError):
        os.nice(19)
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    parent = os.getppid()
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        os.kill(os.getpid(), signal.SIGKILL)
