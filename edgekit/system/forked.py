"""Engines, and all else that has threads, locks or files, in a forked process.

Whoever opens something before ``os.fork`` registers it with ``tell_of_fork``; the one handler here tells it.

The child inherits an engine's objects, but not its threads. Destructors join these threads: ONNX Runtime
then waits forever, and OpenVINO ends the process by ``abort``. Therefore the child never frees an engine that
was loaded before the fork, neither by ``close`` nor when it ends. Nor does it remove its parent's files.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

T = TypeVar("T")

_loaded: WeakValueDictionary[int, object] = WeakValueDictionary()
"""Keyed by ``id``; a runner need not be hashable."""
_ever: list[None] = []
"""One entry once an engine was loaded: its libraries have destructors of their own."""


inside: list[None] = []
"""One entry for each thread that is inside an engine; see ``interrupts.in_engine``."""


def leave_to_parent(runner: T) -> T:
    """Return an engine's object, which a forked process will keep until it ends."""
    _ever[:] = [None]
    with suppress(TypeError):  # its class has __slots__
        _loaded[id(runner)] = runner
    return runner


class Forkable(Protocol):
    """Something that a process opened, and that a forked process cannot use as it is."""

    def forked(self) -> None:
        """Replace locks that another thread of the parent may hold, and drop what stayed in the parent."""


_told: WeakSet[Forkable] = WeakSet()


def tell_of_fork(item: Forkable) -> None:
    """Call ``item.forked()`` in a process that is forked from this one, before anything else runs there."""
    _told.add(item)


def keep(item: object) -> None:
    """Never free an object, not even when the interpreter ends."""
    with suppress(ImportError):  # without ctypes the child must end by os._exit
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))


def at_exit(work: Callable[[], object]) -> None:
    """Call a function when this process ends, but not when one that is forked from it ends."""
    pid = os.getpid()

    def call() -> None:
        if os.getpid() == pid:
            work()

    atexit.register(call)


def skip_destructors() -> None:
    """Let the process end, with its own exit code, without the destructors of the libraries that are loaded
    now. Does nothing if the C library has no ``on_exit`` (musl, macOS)."""
    if sys.platform == "linux":
        import ctypes  # here: almost no process needs it

        libc = ctypes.CDLL(None)
        if hasattr(libc, "on_exit"):
            libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


def _before_fork() -> None:
    """Import ctypes in the parent: in the child another thread's import may never end."""
    if _ever:
        try:
            import ctypes  # noqa: F401
        except ImportError:  # Python can be built without it
            _ever.clear()


def _after_fork() -> None:
    inside.clear()
    for runner in list(_loaded.values()):
        keep(runner)
        with suppress(TypeError):
            vars(runner)["close"] = _kept
    if _ever:
        skip_destructors()
    for item in list(_told):
        item.forked()


def _kept() -> None:
    """Replace ``close`` in a forked process."""


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
