"""Threads, and waiting for them, that an interrupt cannot break.

Ctrl-C raises KeyboardInterrupt in the main thread between any two of its instructions, this library's among
them. ``with lock`` on a plain lock stands that: it is taken and given back in C, and signals are looked at
only inside the block. What ``threading`` has in Python does not: a Condition or an Event that is interrupted
as it is entered stays locked for ever, and a Thread interrupted in ``start`` may never begin.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable

END_S = 1.0
"""The longest wait for a thread whose work has ended: Thread.join, interrupted twice, may wait for ever."""


class Background:
    """A daemon thread at work. An interrupt leaves either none, or one that works.

    Args:
        work: What it does.
        name: Of the thread.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._pid = os.getpid()
        self._ident: int | None = None
        self._over = False
        started, ended = threading.Lock(), threading.Lock()
        started.acquire()
        ended.acquire()

        def whole() -> None:
            self._ident = threading.get_ident()
            try:
                work()
            finally:
                self._over = True
                ended.release()

        def start() -> None:
            try:
                thread.start()
            except RuntimeError:  # there cannot be another thread; this one will do
                whole()
            finally:
                started.release()

        self._started, self._ended = started, ended
        self._thread = thread = threading.Thread(target=whole, name=name, daemon=True)
        # Thread.start waits, in Python, until the thread runs. In a thread that is not the main one no signal
        # interrupts that; starting this one is a single call into C.
        _thread.start_new_thread(start, ())

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the work has ended, at most so long. Not in the work itself, nor in a forked process,
        which has no such thread."""
        if self._pid != os.getpid() or self._ident == threading.get_ident():
            return
        if timeout_s is None and not self._over:
            with self._ended:
                pass
        elif not self._over:  # else an interrupted call may have kept the lock
            if not self._ended.acquire(timeout=timeout_s or 0):
                return
            self._ended.release()
        with self._started:
            pass
        if self._thread.ident is not None:  # it did begin, and is at its very end
            self._thread.join(END_S)


class News:
    """Who waits for a change. Its methods are called while the lock is held that guards what changes, the
    waiting itself happens without it:

    with lock:
        if not there:
            waiter = news.waiter()
    waiter.acquire()        # until somebody tells; then look again
    """

    def __init__(self) -> None:
        self._waiters: list[threading.Lock] = []

    def waiter(self) -> threading.Lock:
        """A lock that can be acquired, once, after the next change."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: threading.Lock) -> None:
        """Nobody waits for this one any more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def tell(self) -> None:
        """Something changed. What an interrupt leaves untold, the next call tells."""
        for waiter in self._waiters:
            if waiter.locked():
                waiter.release()
        self._waiters.clear()
