"""The receipt of a row put into an outbox."""

from __future__ import annotations

import contextlib
import os
import threading

from edgekit.errors import UsageError


def refuse_fork(pid: int) -> None:
    """Check that this process opened the outbox. Raises UsageError if it was forked from the one that did."""
    if os.getpid() != pid:
        raise UsageError(
            f"the outbox was opened by process {pid}, and this is {os.getpid()}, forked from it, where "
            "nothing is stored or delivered; open one here, with a folder of its own"
        )


class Receipt:
    """The state of one row: ``waiting``, ``stored``, or ``dropped`` before it was stored."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = "waiting"
        self._pid = os.getpid()
        self._waiters: list[threading.Lock] = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the disk. True: the row is stored; False: it was dropped, or the timeout is over.

        Raises:
            UsageError: it would block in a forked process, where no thread stores rows.
        """
        if self.state == "waiting":
            refuse_fork(self._pid)
            # One lock for each waiting thread: an Event's own could stay locked after a Ctrl-C, and block the
            # thread that resolves the receipt forever.
            waiter = threading.Lock()
            waiter.acquire()
            self._waiters.append(waiter)
            try:
                if self.state == "waiting":
                    longest_s = threading.TIMEOUT_MAX
                    waiter.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), longest_s))
            finally:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
        return self.state == "stored"

    def resolve(self, state: str) -> None:
        """Set the final state and wake the waiting threads. Only the outbox calls it."""
        self.state = state
        while self._waiters:
            with contextlib.suppress(IndexError):  # the waiting thread has timed out
                self._waiters.pop().release()
