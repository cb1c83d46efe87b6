"""A future that an interrupt cannot break: Ctrl-C while waiting for its result does not block the worker
thread.

The standard one uses a Condition (see ``system/interrupts.py``): a caller interrupted in ``result()`` could
leave it locked, and the thread that sets the result would wait forever.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError  # in Python 3.10 not the built-in one
from concurrent.futures._base import FINISHED
from operator import attrgetter
from typing import Any

from edgekit.errors import UsageError
from edgekit.system.interrupts import Notifier
from edgekit.tensor_spec import Array


class _SafeCondition:
    """The part of a Condition that Future uses. The properties let ``with`` call the lock's C methods
    directly."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self.notifier = Notifier()

    def notify_all(self) -> None:
        self.notifier.notify()


class Pending(Future[dict[str, Array]]):
    """The future outputs of one request.

    ``result`` and ``exception`` raise UsageError in a forked process if the parent process waits for the
    result.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()
        self._condition: Any = _SafeCondition()

    def result(self, timeout: float | None = None) -> dict[str, Array]:
        if self._state is not FINISHED:
            self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state is not FINISHED:
            self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        condition = self._condition
        if self._pid != os.getpid():
            self._condition = condition = _SafeCondition()  # the old one may be held
            if not self.done():
                raise UsageError(
                    "this request was made before os.fork(), and its result arrives in the parent "
                    "process only; repeat it in this one"
                )
        with condition:
            if self.done():
                return
            waiter = condition.notifier.waiter()
        if waiter.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return
        with condition:
            condition.notifier.forget(waiter)
            if not self.done():
                raise FutureTimeoutError
