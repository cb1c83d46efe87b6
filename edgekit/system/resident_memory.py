"""The memory that this process holds."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys


def resident_bytes() -> int:
    """Return the memory of this process; 0 where it can't be read, as on macOS and Windows."""
    if sys.platform != "linux":
        return 0
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def release_unused() -> None:
    """Free objects that hold each other, and return the heap's free pages to the system.

    Nodes and values of a graph hold each other, and all constants with them. glibc keeps what is freed: after
    the calibration of a detector twice as much as was in use.
    """
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)
