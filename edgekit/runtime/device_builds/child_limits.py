"""Priority and resource limits of a child process; builders and probes apply them first."""

from __future__ import annotations

import contextlib
import os
import sys

from edgekit.system.confinement import die_with_parent

PR_SET_NO_NEW_PRIVS = 38
"""prctl(2): no program that this process starts, set-user-ID or not, gains privileges."""


def lower_priority() -> None:
    """Set this process to the lowest priority, preferred by the OOM killer, and killed with the app. Linux
    only."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.nice(19)
    die_with_parent()


def confine(memory_mb: int, seconds: float | None) -> None:
    """Limit this process, which handles untrusted files: address space (0: no limit), CPU time, no core dump,
    no new privileges; preferred by the OOM killer, and killed with the app. Limits that a system does not
    support are skipped. ``seconds=None`` is for a process that runs on after the thread that started it: it
    has no limit of CPU time, and ends itself when the app has ended."""
    if sys.platform != "win32":
        import resource

        limits = {
            **({resource.RLIMIT_AS: memory_mb << 20} if memory_mb else {}),
            **({} if seconds is None else {resource.RLIMIT_CPU: int(seconds) + 1}),
            resource.RLIMIT_CORE: 0,
        }
        for limit, value in limits.items():
            with contextlib.suppress(OSError, ValueError):  # a lower limit is already set
                resource.setrlimit(limit, (value, value))
    if seconds is not None:
        die_with_parent()
    if sys.platform.startswith("linux"):
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
