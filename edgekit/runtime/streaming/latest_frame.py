"""The newest frame of a source that goes on whether it is looked at or not: a camera, a stream.

    with Newest(camera) as frames:
        for frame in frames:        # of what came while the last one was worked on, only the newest
            ...

A thread reads the source, for frames that nobody fetches would be handed out late, not never.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from edgekit.system.interrupts import Background, News

CLOSE_S = 5.0
"""How long closing waits for a source that does not return."""


class LatestFrame:
    """An iterator that gives the newest frame not given yet, and waits where there is none.

    Args:
        frames: Read in a thread of its own, which starts when the first frame is asked for.

    Attributes:
        dropped: Frames that a newer one replaced.
    """

    def __init__(self, frames: Iterable[Any]) -> None:
        self.dropped = 0
        self._frames: Iterator[Any] | None = iter(frames)
        self._lock, self._news = threading.Lock(), News()
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
                news = self._news.waiter()
            news.acquire()
        if problem is not None:
            raise problem
        raise StopIteration

    def close(self) -> None:
        """Read no more. Waits until the source has given what it was asked for, but not for ever."""
        self._end(None)
        with self._lock:
            self._slot.clear()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    def __enter__(self) -> LatestFrame:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._frames is not None
        problem: BaseException | None = None
        if not self._begun.acquire(blocking=False):
            return  # whoever began the first thread was interrupted before it was known
        try:
            for frame in self._frames:
                with self._lock:
                    if self._ended:
                        break
                    self.dropped += len(self._slot)
                    self._slot[:] = [frame]
                    self._news.tell()
        except BaseException as raised:  # told to who reads: there nobody would see it
            problem = raised
        self._frames = None  # a generator ends here, in the thread that ran it
        self._end(problem)

    def _end(self, problem: BaseException | None) -> None:
        with self._lock:
            self._problem = problem if not self._ended else self._problem
            self._ended = True
            self._news.tell()
