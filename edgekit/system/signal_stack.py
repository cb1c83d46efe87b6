"""Stack on which a thread's signal handlers run, kept while an engine loads a model."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class SignalStack(ctypes.Structure):
    """``stack_t`` of Linux (sigaltstack(2))."""

    _fields_ = (("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def kept_signal_stack() -> Iterator[None]:
    """Restore this thread's alternate stack for signal handlers afterwards.

    OpenVINO 2026.4 sets a stack of its own when it compiles, and the one before when the compiled model ends.
    If two models end in the order in which they began, a freed stack is left, and the next signal that Python
    handles, such as Ctrl-C, ends the process.
    """
    if sys.platform != "linux":
        yield
        return
    sigaltstack, before = ctypes.CDLL(None).sigaltstack, SignalStack()
    sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        sigaltstack(ctypes.byref(before), None)
