"""Freed memory goes back to the system, with glibc (Linux)."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
LARGE_BYTES = 1 << 20
KEPT_BYTES = 16 << 20


def return_freed_memory() -> bool:
    """Let blocks above LARGE_BYTES go back to the system when they are freed, or return False.

    glibc otherwise takes blocks of up to 32 MB from its heap after the first of that size was freed, and
    keeps what lies below any block that is still used.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))
