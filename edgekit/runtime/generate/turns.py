"""A lock that is given in the order in which it was asked for: conversations take turns.

Who waits may say what for. Then the holder can do it along with its own, and the other needs no turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, RLock, get_ident
from time import monotonic
from typing import Generic, TypeVar

from edgekit.system.interrupts import Notifier

T = TypeVar("T")


@dataclass(eq=False)
class _Waiter(Generic[T]):
    lock: Lock
    wish: T | None


class Turns(Generic[T]):
    """``with turns:`` as a lock. A plain lock may be taken again and again by the thread that just freed it.

    A thread that was interrupted (Ctrl-C) on its way in passes its turn on, or finds it when it asks again.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # not a Condition: interrupted as it is entered, that may stay locked
        self._arrivals = Notifier()
        self._waiting: deque[_Waiter[T]] = deque()
        self._holder: int | None = None

    def ask(self, wish: T | None = None) -> bool:
        """Wait for the turn.

        Args:
            wish: What it is for, in ``wishes`` of the holder meanwhile.

        Returns:
            Whether it is this thread's turn; False: the holder has fulfilled the wish.
        """
        waiter = _Waiter(Lock(), wish)
        waiter.lock.acquire()
        try:
            with self._lock:
                if self._holder is None or self._holder == get_ident():
                    self._holder = get_ident()
                    return True
                self._waiting.append(waiter)
                self._arrivals.notify()
            waiter.lock.acquire()  # released by the one before
            return self._begins(waiter)
        except BaseException:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            if self._begins(waiter):
                self.leave()
            raise

    def _begins(self, waiter: _Waiter[T]) -> bool:
        """Whether a waiter that waits no more has its turn; ``fulfilled`` gave it none."""
        with self._lock:
            if self._next is not waiter:
                return False
            self._next, self._holder = None, get_ident()
            return True

    _next: _Waiter[T] | None = None
    """Whose turn it is, until it says so itself."""

    def leave(self) -> None:
        """Pass the turn on."""
        with self._lock:
            self._holder = None
            if self._waiting:
                self._holder = 0  # of the next one
                self._next = self._waiting.popleft()
                self._next.lock.release()

    def __enter__(self) -> None:
        self.ask()

    def __exit__(self, *_: object) -> None:
        self.leave()

    # --- for the holder ----------------------------------------------------------------------------------

    def wishes(self, enough: Callable[[list[T]], bool] | None = None, wait_s: float = 0.0) -> list[T]:
        """What the waiting ones want, in their order.

        Args:
            enough: Wait until this is true of the wishes.
            wait_s: At most so long.
        """

        def found() -> list[T]:
            return [waiter.wish for waiter in self._waiting if waiter.wish is not None]

        end_s = monotonic() + wait_s
        while True:
            with self._lock:
                wishes = found()
                if enough is None or enough(wishes) or (left_s := end_s - monotonic()) <= 0:
                    return wishes
                arrival = self._arrivals.waiter()
            arrival.acquire(timeout=left_s)
            with self._lock:
                self._arrivals.forget(arrival)

    def fulfilled(self, wish: T) -> None:
        """A wish needs no turn any more. One who waits no longer, since it was interrupted, is no fault."""
        with self._lock:
            for waiter in self._waiting:
                if waiter.wish is wish:
                    self._waiting.remove(waiter)
                    waiter.lock.release()
                    return

    @property
    def held(self) -> bool:
        """Whether it is anybody's turn."""
        return self._holder is not None

    @property
    def waiting(self) -> int:
        """Threads that wait for their turn."""
        return len(self._waiting)
