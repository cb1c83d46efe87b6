"""A child that stands back, or is confined: what a builder and a probe call first."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
"""prctl(2): the signal that this process gets when its parent dies; that no program it starts, set-user-ID or
not, may do more than it may."""


def lower_priority() -> None:
    """Lowest priority, the first to go when memory runs out, and gone when the app is. Linux only."""
    with contextlib.suppress(OSError):
        os.nice(19)
    _first_to_go()


def confine(memory_mb: int, seconds: float) -> None:
    """Limits of a process that tries what may be hostile: address space, processor time, no core file, no new
    privileges; the first to go when memory runs out, and gone when the app is. What a system has no limit for
    is left."""
    with contextlib.suppress(ImportError):  # Windows has none of them
        import resource

        limits = {
            resource.RLIMIT_AS: memory_mb << 20,
            resource.RLIMIT_CPU: int(seconds) + 1,
            resource.RLIMIT_CORE: 0,
        }
        for limit, value in limits.items():
            with contextlib.suppress(OSError, ValueError):  # one that is lower already stays
                resource.setrlimit(limit, (value, value))
    _first_to_go(PR_SET_NO_NEW_PRIVS)


def _first_to_go(*more: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    parent = os.getppid()
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for option in more:
            prctl(option, 1, 0, 0, 0)
    if os.getppid() != parent:  # it died in between
        os.kill(os.getpid(), signal.SIGKILL)
