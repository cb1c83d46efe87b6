"""A lock that is given in the order in which it was asked for: conversations take turns."""

from __future__ import annotations

from collections import deque
from threading import Lock, get_ident


class Turns:
    """``with turns:`` as a lock. A plain lock may be taken again and again by the thread that just freed it.

    A thread that was interrupted (Ctrl-C) on its way in passes its turn on, or finds it when it asks again.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Lock] = deque()
        self._holder: int | None = None

    def __enter__(self) -> None:
        waiter = Lock()
        waiter.acquire()
        try:
            with self._lock:
                if self._holder is None or self._holder == get_ident():
                    self._holder = get_ident()
                    return
                self._waiting.append(waiter)
            waiter.acquire()  # released by the one before
            self._holder = get_ident()
        except BaseException:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holder = None
            if self._waiting:
                self._holder = 0  # of the next one, which will say so itself
                self._waiting.popleft().release()

    @property
    def waiting(self) -> int:
        """Threads that wait for their turn."""
        return len(self._waiting)
