"""The latest frame of a source that does not wait for its reader: a camera, a network stream.

    with LatestFrame(camera) as frames:
        for frame in frames:        # frames that arrived during the last iteration are dropped, but the
        newest
            ...

A thread reads the source continuously; otherwise its buffer would fill, and frames would be old.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from edgekit.system.closing import Closing
from edgekit.system.interrupts import Background, Notifier

CLOSE_S = 5.0
"""How long ``close`` waits for a source that does not return."""


class LatestFrame(Closing):
    """An iterator over the newest frame not returned yet; it waits for one if necessary.

    Args:
        frames: Read in a thread of its own, which starts with the first call of ``next``.
    """

    def __init__(self, frames: Iterable[Any]) -> None:
        self.dropped = 0
        self._frames: Iterator[Any] | None = iter(frames)
        self._lock, self._changed = threading.Lock(), Notifier()
        self._slot: list[Any] = []
        self._ended = False
        self._problem: BaseException | None = None
        self._thread: Background | None = None
        self._begun = threading.Lock()

    def __iter__(self) -> LatestFrame:
        return self

    def __next__(self) -> Any:
        if self._thread is None and not self._ended:
            self._thread = Background(self._read, "edgekit-newest")
        while True:
            with self._lock:
                if self._slot:
                    return self._slot.pop()
                if self._ended:
                    problem, self._problem = self._problem, None
                    break
                waiter = self._changed.waiter()
            waiter.acquire()
        if problem is not None:
            raise problem
        raise StopIteration

    def close(self) -> None:
        """Stop reading. Waits, with a timeout, until the source returns."""
        self._end(None)
        with self._lock:
            self._slot.clear()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    def _read(self) -> None:
        assert self._frames is not None
        problem: BaseException | None = None
        if not self._begun.acquire(blocking=False):
            return  # an interrupted call had started another thread already
        try:
            for frame in self._frames:
                with self._lock:
                    if self._ended:
                        break
                    self.dropped += len(self._slot)
                    self._slot[:] = [frame]
                    self._changed.notify()
        except BaseException as raised:  # re-raised in the reader
            problem = raised
        self._frames = None  # closes a generator here, in the thread that ran it
        self._end(problem)

    def _end(self, problem: BaseException | None) -> None:
        with self._lock:
            self._problem = problem if not self._ended else self._problem
            self._ended = True
            self._changed.notify()
