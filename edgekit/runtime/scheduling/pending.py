"""A future that an interrupt cannot break: Ctrl-C while its answer is waited for blocks nobody who gives it.

The standard one is guarded by a Condition (see ``interrupts``): a caller who was interrupted in ``result()``
could leave it locked, and the thread that answers would wait for it for ever.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late  # Python 3.10 has one of its own
from operator import attrgetter
from typing import Any

from edgekit.errors import UsageError
from edgekit.system.interrupts import News
from edgekit.tensors import Array


class _Guard:
    """What a Future asks of its condition. ``with`` finds and calls the lock's own methods without Python."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self.news = News()

    def notify_all(self) -> None:
        self.news.tell()


class Pending(Future[dict[str, Array]]):
    """The outputs of one request, some time.

    ``result`` and ``exception`` raise UsageError in a forked process that asks for what its parent waits for.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._condition: Any = _Guard()

    def result(self, timeout: float | None = None) -> dict[str, Array]:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        guard = self._condition
        if self._pid != os.getpid():
            self._condition = guard = _Guard()  # a thread that is not here may have held it
            if not self.done():
                raise UsageError(
                    "this answer was asked for before os.fork(), and comes in the parent process only; "
                    "ask again in this one"
                )
        with guard:
            if self.done():
                return
            waiter = guard.news.waiter()
        if waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return
        with guard:
            guard.news.forget(waiter)
            if not self.done():
                raise Late
