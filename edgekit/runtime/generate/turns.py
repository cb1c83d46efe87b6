"""Fair lock: granted in the order in which it was requested, so that conversations take turns.

A waiter may attach work, which the lock holder batches with its own.
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
    """Fair lock for ``with turns:``. The thread that frees a plain lock may acquire it again and again.

    A thread that was interrupted (Ctrl-C) while acquiring passes its turn on, or gets it at its next request.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # not a Condition: interrupted as it is entered, that may stay locked
        self._arrivals = Notifier()
        self._waiting: deque[_Waiter[T]] = deque()
        self._holder: int | None = None

    def ask(self, wish: T | None = None) -> bool:
        """Wait for the turn.

        Args:
            wish: Work to attach; the holder finds it in ``wishes`` meanwhile.

        Returns:
            Whether it is this thread's turn; False: the holder has done the work.
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
        """Return whether a released waiter gets its turn; False if ``fulfilled`` released it."""
        with self._lock:
            if self._next is not waiter:
                return False
            self._next, self._holder = None, get_ident()
            return True

    _next: _Waiter[T] | None = None
    """The released waiter, until its thread takes the turn."""

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
        """Return the work attached by waiters, in their order.

        Args:
            enough: Predicate on that work; wait until it is true.
            wait_s: Maximum time to wait, in seconds.
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
        """Release the waiter whose work is done. A waiter that was interrupted meanwhile is ignored."""
        with self._lock:
            for waiter in self._waiting:
                if waiter.wish is wish:
                    self._waiting.remove(waiter)
                    waiter.lock.release()
                    return

    @property
    def held(self) -> bool:
        """Return whether a thread holds the lock."""
        return self._holder is not None

    @property
    def waiting(self) -> int:
        """Return the number of threads that wait for their turn."""
        return len(self._waiting)
