"""What an app holds of a row that it put into an outbox."""

from __future__ import annotations

import contextlib
import os
import threading

from edgekit.runtime.outbox.fork import stay_in


class Receipt:
    """What became of one row: ``waiting`` for the disk, ``stored``, or ``dropped`` before it was."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.state = "waiting"
        self._pid = os.getpid()
        self._bells: list[threading.Lock] = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the disk. True: the row is stored; False: it was dropped, or it takes longer.

        Raises:
            UsageError: it would wait in a forked process, where nobody stores.
        """
        if self.state == "waiting":
            stay_in(self._pid)
            # A lock for each that waits: an Event's own would stay locked where a Ctrl-C comes at the wrong
            # moment, and who settles the receipt would wait for it for ever.
            bell = threading.Lock()
            bell.acquire()
            self._bells.append(bell)
            try:
                if self.state == "waiting":
                    longest_s = threading.TIMEOUT_MAX
                    bell.acquire(timeout=-1 if timeout_s is None else min(max(timeout_s, 0.0), longest_s))
            finally:
                with contextlib.suppress(ValueError):
                    self._bells.remove(bell)
        return self.state == "stored"

    def settle(self, state: str) -> None:
        """The outbox's own."""
        self.state = state
        while self._bells:
            with contextlib.suppress(IndexError):  # it stopped waiting
                self._bells.pop().release()
