"""Worker processes by uvicorn, with a pause before one that keeps ending is started again.

A model whose engine ends its process at each request would otherwise have all models loaded again and again,
which takes the processor from the workers that still answer.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

LONGEST_SECONDS = 8.0
"""Maximum pause. Connections wait meanwhile, if no other worker runs."""
STEADY_SECONDS = 60.0
"""A worker that ran for so long is started again without a pause."""


@dataclass(frozen=True)
class Ends:
    """Ends of a worker's processes, one after the other.

    Attributes:
        count: Number of processes in a row that ended within STEADY_SECONDS.
        due_s: Time at which the next process starts.
    """

    count: int
    due_s: float


def next_end(before: Ends | None, now_s: float) -> Ends:
    """Compute when the process of a worker that ended now is started again: the first at once, each further
    one after twice the pause.

    >>> first = next_end(None, 100.0)
    >>> second = next_end(first, 102.0)
    >>> first, second, next_end(second, 105.0)
    (Ends(count=1, due_s=100.0), Ends(count=2, due_s=103.0), Ends(count=3, due_s=107.0))

    Args:
        before: Previous end; None if there is none.
        now_s: Current time, on any monotonic clock.
    """
    if before is None or now_s - before.due_s >= STEADY_SECONDS:
        return Ends(1, now_s)
    pause_s = min(LONGEST_SECONDS, 2.0 ** min(before.count - 1, 30))
    return Ends(before.count + 1, now_s + pause_s)


class Workers(Multiprocess):
    """Worker processes of a server."""

    def init_processes(self) -> None:
        """Start all of them."""
        self._ends: dict[int, Ends] = {}  # by place
        self._dead: dict[int, Process] = {}  # by place, until they are replaced
        super().init_processes()

    def keep_subprocess_alive(self) -> None:
        """Start again each worker that ended, when its pause is over."""
        workers = self.processes
        for place, process in enumerate(workers):
            if self._pauses(place, process):
                continue
            self.processes = [process]  # uvicorn replaces one that ended or hangs
            super().keep_subprocess_alive()
            workers[place] = self.processes[0]
        self.processes = workers

    def _pauses(self, place: int, process: Process) -> bool:
        if process.exitcode in (None, STARTUP_FAILURE):
            return False
        now_s = time.monotonic()
        if self._dead.get(place) is not process:
            self._dead[place] = process
            end = self._ends[place] = next_end(self._ends.get(place), now_s)
            print(
                f"error: worker {process.pid} ended with {process.exitcode}; another one starts in "
                f"{end.due_s - now_s:g} s",
                file=sys.stderr,
                flush=True,
            )
        return now_s < self._ends[place].due_s
