"""Watches a child's memory and time, and ends it when it takes more than it may."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from edgekit.compiler.sandbox.limits import MEMORY_MB, SECONDS, ChildLimits
from edgekit.system.memory import UNKNOWN_BYTES, free_memory_bytes
from edgekit.system.regular_file import read_plain

POLL_S = 0.02
"""Seconds between two checks of memory; a core fills 100 MB in that time."""
SEARCH_S = 0.5
"""Seconds between two searches for the child's own children, each of which reads a file per process."""
NEED_LIMIT_BYTES = 40
"""Maximum size of a file that holds two numbers."""
STEP_SHARE = 0.5
"""Largest part of the time limit without a crumb while a step is at risk: the engine hangs."""
STOPPED_S = 1.0
"""A longer gap between two looks was spent stopped or suspended, and counts as this much."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Need(NamedTuple):
    """Memory and time that a child reports to need, 0 if it did not."""

    memory_bytes: int = 0
    seconds: float = 0.0


class ChildWatch:
    """Watch over one child's limits, from construction to :meth:`close`.

    Attributes:
        overrun: The limit that was exceeded; "" if none.
        advice: Advice on raising that limit.
        limit_bytes: Memory limit at the last check, in bytes.
        limit_s: Time limit at the last check, in seconds.
        peak_bytes: Peak memory measured, in bytes; 0 if the system does not report it.
        spent_s: Time spent on the request, in seconds.
    """

    def __init__(
        self,
        pid: int,
        limits: ChildLimits,
        end: Callable[[], None],
        spent_s: float,
        last_crumb: Callable[[], tuple[int, str, str]],
        need: Path,
    ) -> None:
        """Start watching.

        Args:
            end: Function that ends the child and all processes that it started.
            spent_s: Time spent by earlier children of the request, in seconds.
            last_crumb: Function that reads the child's current step.
            need: File in which the child reports its need; it is not trusted.
        """
        self.overrun, self.advice, self.peak_bytes, self.spent_s = "", "", 0, spent_s
        self.limit_bytes, self.limit_s = limits.memory_bytes, limits.seconds
        self._pid, self._limits, self._end = pid, limits, end
        self._last_crumb, self._need = last_crumb, need
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="edgekit-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching: ``end`` is not called after that."""
        self._closed.set()
        self._thread.join()

    def need(self) -> Need:
        try:
            memory_bytes, seconds = map(int, read_plain(self._need, NEED_LIMIT_BYTES).split())
        except (OSError, ValueError):
            return Need()
        return Need(memory_bytes, seconds)

    def raise_limits(self) -> None:
        """Raise the limits to the child's need, up to what the machine has and ``MOST_SECONDS``."""
        need = self.need()
        self.limit_bytes = max(self.limit_bytes, min(need.memory_bytes, self._limits.most_memory_bytes))
        self.limit_s = max(self.limit_s, min(need.seconds, self._limits.most_seconds))

    def _time_advice(self) -> str:
        less = ", or use fewer targets or samples" if self.limit_s > self._limits.seconds else ""
        return f"set {SECONDS}={2 * self.limit_s:g} in the environment to double it{less}"

    def _watch(self) -> None:
        last, searched = time.monotonic(), 0.0
        family = [self._pid]
        crumb, crumb_at_s = (0, "", ""), self.spent_s
        while not self._closed.wait(POLL_S):
            now = time.monotonic()
            self.spent_s, last = self.spent_s + min(now - last, STOPPED_S), now
            if now - searched > SEARCH_S:
                family, searched = [self._pid, *_session(self._pid)], now
                if (latest := self._last_crumb()) != crumb:
                    crumb, crumb_at_s = latest, self.spent_s
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, family)))
            if self.peak_bytes > self.limit_bytes or self.spent_s > STEP_SHARE * self.limit_s:
                self.raise_limits()
            limit, step_seconds = self.limit_bytes, STEP_SHARE * self.limit_s
            if self.peak_bytes > limit:
                self.overrun = f"its process used more than its limit of {_megabytes(limit)} of memory"
                self.advice = memory_advice(limit, self.need().memory_bytes)
            elif crumb[2] and self.spent_s - crumb_at_s > step_seconds:
                self.overrun = f"its process took longer than its limit of {step_seconds:g} s for this step"
                self.advice = self._time_advice()
            elif self.spent_s > self.limit_s:
                self.overrun = f"its process took longer than its limit of {self.limit_s:g} s"
                self.advice = self._time_advice()
            if self.overrun:
                self._end()
                return


def starved(limit_bytes: int, peak_bytes: int) -> str:
    """Return how a child ended whose allocation failed below its memory limit."""
    return (
        f"its process used {_megabytes(peak_bytes)} of memory and needed more than its limit, "
        f"{_megabytes(limit_bytes)}"
    )


def memory_advice(limit_bytes: int, needed_bytes: int = 0) -> str:
    """Return advice on raising the memory limit, and whether this machine has enough.

    Args:
        needed_bytes: Estimated need of the build; above the limit if the machine has less memory.
    """
    doubled_mb = math.ceil(2 * limit_bytes / 1e6 - 0.5)
    estimated = f"it may need {_megabytes(needed_bytes)}; " if needed_bytes > limit_bytes else ""
    free_bytes = free_memory_bytes()
    if free_bytes >= UNKNOWN_BYTES:
        free = ""
    elif free_bytes >= doubled_mb * 1e6:
        free = f"; {_megabytes(free_bytes)} are free here"
    else:
        free = f", but only {_megabytes(free_bytes)} are free here: use fewer targets or samples"
    return f"{estimated}set {MEMORY_MB}={doubled_mb} in the environment to double it{free}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    return 0


def _session(leader: int) -> list[int]:
    """Return the processes of the leader's session, without the leader; none where there is no /proc."""
    processes: list[int] = []
    if sys.platform != "linux":
        return processes
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != leader:
                with contextlib.suppress(OSError):
                    if os.getsid(int(name)) == leader:
                        processes.append(int(name))
    return processes
