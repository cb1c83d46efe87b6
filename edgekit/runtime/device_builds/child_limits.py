"""Priority and resource limits of a child process; builders and probes apply them first."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
"""prctl(2): the signal sent to this process when its parent dies; and that no program it starts, set-user-ID
or not, gains privileges."""


def lower_priority() -> None:
    """Lowest priority, preferred by the OOM killer, and killed with the app. Linux only."""
    with contextlib.suppress(OSError):
        os.nice(19)
    _die_with_parent()


def confine(memory_mb: int, seconds: float) -> None:
    """Limits for a process that handles untrusted files: address space, CPU time, no core dump, no new
    privileges; preferred by the OOM killer, and killed with the app. Limits that a system does not support
    are skipped."""
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        limits = {
            resource.RLIMIT_AS: memory_mb << 20,
            resource.RLIMIT_CPU: int(seconds) + 1,
            resource.RLIMIT_CORE: 0,
        }
        for limit, value in limits.items():
            with contextlib.suppress(OSError, ValueError):  # a lower limit is already set
                resource.setrlimit(limit, (value, value))
    _die_with_parent(PR_SET_NO_NEW_PRIVS)


def _die_with_parent(*options: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    parent = os.getppid()
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for option in options:
            prctl(option, 1, 0, 0, 0)
    if os.getppid() != parent:  # it died before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)
