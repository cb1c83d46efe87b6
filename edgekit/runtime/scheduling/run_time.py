"""Running mean and deviation of a run's time, to reject requests that would be answered too late."""

from __future__ import annotations

GAIN, DEVIATION_GAIN = 1 / 8, 1 / 4
"""Weights of the newest value, and deviations that ``upper_s`` allows for: as TCP's estimate of a round trip
(RFC 6298, Jacobson 1988)."""
DEVIATIONS = 4


class RunTime:
    """The time of a run by those so far. One writer; readers see one of its values.

    >>> time = RunTime()
    >>> time.mean_s, time.upper_s
    (0.0, 0.0)
    >>> for _ in range(100): time.took(0.002)
    >>> round(time.mean_s, 4), round(time.upper_s, 4)
    (0.002, 0.002)

    Attributes:
        mean_s: In seconds; 0 before the first run.
    """

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._deviation_s = 0.0

    def took(self, seconds: float) -> None:
        """Record a run."""
        if not self.mean_s:
            self.mean_s, self._deviation_s = seconds, seconds / 2
            return
        self._deviation_s += DEVIATION_GAIN * (abs(seconds - self.mean_s) - self._deviation_s)
        self.mean_s += GAIN * (seconds - self.mean_s)

    @property
    def upper_s(self) -> float:
        """Return the time that a run seldom exceeds, in seconds."""
        return self.mean_s + DEVIATIONS * self._deviation_s
