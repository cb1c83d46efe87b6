"""Memory of this machine, and what of it this process can still have, on Linux."""

from __future__ import annotations

import contextlib
from pathlib import Path

UNKNOWN_BYTES = 1 << 50


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Return the least of what the machine has available and what the control group leaves; a large number if
    unknown.

    MemAvailable of /proc/meminfo, and version 2's memory.max less memory.current of the group that a
    container sees as its own. The group's page cache, which the kernel frees, counts as free.
    """
    return min(_of_machine(root, "MemAvailable:"), _of_group(root))


def all_memory_bytes(root: Path = Path("/")) -> int:
    """Return the machine's or the control group's memory, the smaller one; a large number if unknown."""
    limit = UNKNOWN_BYTES
    with contextlib.suppress(OSError, ValueError):  # ``max``: no limit
        limit = int((root / "sys/fs/cgroup/memory.max").read_text("ascii"))
    return min(_of_machine(root, "MemTotal:"), limit)


def _of_machine(root: Path, fact: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith(fact):
                return int(line.split()[1]) << 10
    return UNKNOWN_BYTES


def _of_group(root: Path) -> int:
    group = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError, ValueError, IndexError):
        limit = (group / "memory.max").read_text("ascii").strip()
        if limit != "max":
            used = int((group / "memory.current").read_text("ascii"))
            facts = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
            return max(0, int(limit) - used + int(facts.get("inactive_file", 0)))
    return UNKNOWN_BYTES
