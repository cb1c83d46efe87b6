"""Memory use of a process, on Linux."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from edgekit.system.interrupts import pass_on


def resident_mb(pid: int) -> int:
    """Resident memory of a process in MB; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError, IndexError) as problem:
        pass_on(problem)
        return 0
