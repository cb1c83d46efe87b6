"""All limits of a process that opens a stranger's file, and which of them this system keeps.

python -m edgekit.system.confinement      applies them to itself, tries what they forbid, prints JSON
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgekit.system import landlock, seccomp

OPEN_FILES = 4096
STARVED_CODE = 88
"""Exit code of a process to which memory was refused. A message or a traceback would need more of it."""
_SET_DEATH_SIGNAL = 1
"""prctl(2): the signal sent to this process when its parent dies."""
SYSTEM_FOLDERS = (
    "/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev",
)  # fmt: skip
"""What libraries read: themselves, fonts, time zones, the processor."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/shm", "/dev/dri", "/dev/accel", "/dev/kfd")
"""Written to by engines: shared memory, and the nodes of graphics processors."""


class Bounds(NamedTuple):
    """Resource limits of a process. None means no limit.

    Attributes:
        data_bytes: Private memory that it may write to, whether it has touched it or not.
        most_data_bytes: Maximum that :func:`extend_data` may raise that to. None means not at all.
        file_bytes: Maximum size of one file that it writes.
        reads: Folders and files that it may read, in addition to those of the system and of Python.
        writes: Folders and files that it may change.
    """

    data_bytes: int | None
    file_bytes: int | None
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    most_data_bytes: int | None = None


def confine(bounds: Bounds) -> dict[str, str]:
    """Apply all limits to this process, which has one thread so far. What the system lacks is left out.

    Returns:
        Name of each limit -> why it is not kept; "" if it is.
    """
    return {
        "resources": _limit_resources(bounds),
        "end with its parent": die_with_parent(),
        "files": landlock.apply([*SYSTEM_FOLDERS, *_of_python(), *bounds.reads], [*bounds.writes, *DEVICES]),
        "network": seccomp.apply(),
    }


def effective_limits() -> dict[str, str]:
    """Return which limits hold, in the form of :func:`confine`: a confined process tries what they forbid.

    ``memory`` is what the parent watches (edgekit/compiler/sandbox/watch.py).
    """
    import subprocess

    try:
        command = [sys.executable, "-m", "edgekit.system.confinement"]
        ended = subprocess.run(command, capture_output=True, timeout=60, check=True)
        reasons = json.loads(ended.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        return {"all": f"no process could be confined: {problem}"}
    watched = os.path.exists("/proc/self/statm")
    reasons["memory"] = "" if watched else f"{sys.platform} does not report the memory of a process"
    return {str(name): str(reason) for name, reason in reasons.items()}


def _limit_resources(bounds: Bounds) -> str:
    if sys.platform == "win32":
        return f"{sys.platform} has no resource limits"
    import resource

    # No RLIMIT_CPU: with it Linux counts the process's CPU time in ticks of 4 ms, by which engines are timed.
    most_data = bounds.data_bytes if bounds.most_data_bytes is None else bounds.most_data_bytes
    limits: Mapping[str, tuple[int | None, int | None]] = {  # name -> the soft and the hard limit
        "RLIMIT_DATA": (bounds.data_bytes, most_data),
        "RLIMIT_FSIZE": (bounds.file_bytes, bounds.file_bytes),
        "RLIMIT_CORE": (0, 0),
        "RLIMIT_NOFILE": (OPEN_FILES, OPEN_FILES),
    }
    failed = []
    for name, (value, maximum) in limits.items():
        if value is None or maximum is None:
            continue
        try:
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            highest = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
            resource.setrlimit(kind, (min(value, highest), highest))
        except (AttributeError, OSError, ValueError) as problem:
            failed.append(f"{name}: {problem}")
    return "; ".join(failed)


def extend_data(extra_bytes: int) -> None:
    """Raise this process's limit of private memory by so much, up to ``Bounds.most_data_bytes``."""
    if sys.platform == "win32":
        return  # no such limit
    import resource

    with contextlib.suppress(OSError, ValueError):
        limit, maximum = resource.getrlimit(resource.RLIMIT_DATA)
        if limit != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_DATA, (min(limit + extra_bytes, maximum), maximum))


def die_with_parent() -> str:
    """Make the kernel kill this process when the thread that started it ends, and first if memory is short.

    Returns:
        Reason why it does not; "" if it does.
    """
    if sys.platform != "linux":
        return f"{sys.platform} does not signal the death of a parent process"
    import ctypes

    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError) as problem:
        return str(problem)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # the first to go if memory is short
    if os.getppid() != parent:  # it died before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)
    return ""


def _of_python() -> list[str]:
    """Return the folders of this Python and of the modules that it can import, including editable
    installs."""
    tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    paths += [entry for entry in sys.path if entry]
    paths += [tree] if os.path.isfile(os.path.join(tree, "setup.cfg")) else []
    for finder in sys.meta_path:  # setuptools' finder has a table of packages and their folders
        table = getattr(sys.modules.get(getattr(finder, "__module__", "")), "MAPPING", None)
        if isinstance(table, dict):
            paths += [str(folder) for folder in table.values()]
    paths += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [os.path.realpath(path) for path in paths if path]


def _main() -> None:
    """Confine this process, and believe only what was refused."""
    import socket
    import tempfile

    outside = tempfile.gettempdir()
    reasons = confine(Bounds(1 << 32, 1 << 20))
    if not reasons["network"]:
        with contextlib.suppress(PermissionError), socket.socket():
            reasons["network"] = "the filter was set, but a socket could be opened"
    if not reasons["files"]:
        with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=outside):
            reasons["files"] = "the rules were set, but a file could be created"
    sys.stdout.write(json.dumps(reasons))


if __name__ == "__main__":
    _main()
