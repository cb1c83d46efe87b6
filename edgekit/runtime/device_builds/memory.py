"""Memory use of a process, on Linux."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def resident_mb(pid: int) -> int:
    """Resident memory of a process in MB; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20
    return 0
