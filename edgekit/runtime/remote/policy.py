"""When to run a request on the server and when on the device. Pure decisions: no clock, no thread, no socket.

    plan = decide("remote-first", deadline_s, local_s, remote_s, why_not)
    plan.remote_at_s, plan.local_at_s      # seconds after the request's arrival, or None

All times are arguments, in seconds, so that 10,000 schedules are tested in a second.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

POLICIES = ("local-only", "local-first", "remote-first", "confidence")
RESERVE_RATIO, RESERVE_S = 1.5, 0.002
"""Part of a deadline reserved for the local run: its p95 with a margin for a busy machine, and the
hand-over."""
WINDOW = 64
"""Window of a p95, in runs."""
ENOUGH = 8
"""Runs required for a p95 that is used for hedging."""

WEIGHT = 0.2
"""Weight of the newest call in the moving averages of failed and slow calls."""
FEWEST_CALLS = 4
FAILED_RATE, SLOW_RATE = 0.5, 0.8
"""Rates at which the circuit breaker opens: half of the calls fail, or nearly all are too late."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pause of an open breaker, doubled each time; a random factor of 0.5 to 1.5 keeps a fleet from reconnecting
in the same second."""

RETRY_SHARE, RETRIES_SAVED = 0.1, 5.0
"""Retry budget: retries earned per request, and the maximum saved, so that retries cannot multiply an
outage's load."""


@dataclass(frozen=True)
class CallPlan:
    """Plan of a request: where it runs, and when.

    Attributes:
        remote_at_s: Start on the server, in seconds after the request's arrival. None means not there.
        local_at_s: Start on the device, likewise. None means only if the server fails.
    """

    remote_at_s: float | None
    local_at_s: float | None
    reason: str


def decide(
    policy: str, deadline_s: float, local_s: float | None, remote_s: float | None, objection: str
) -> CallPlan:
    """Decide where to run a request.

    Args:
        objection: Reason not to use the server now; empty if it may be used.

    >>> decide("remote-first", 0.1, 0.02, 0.03, "")
    CallPlan(remote_at_s=0.0, local_at_s=0.03, reason='the server first')
    >>> decide("remote-first", 0.1, 0.02, 0.09, "").local_at_s     # reserves the device's time
    0.068
    """
    if policy == "local-only":
        return CallPlan(None, 0.0, "local-only")
    if policy != "remote-first":
        return CallPlan(None, 0.0, "the device first")
    if objection:
        return CallPlan(None, 0.0, objection)
    latest_s = latest_start_s(deadline_s, local_s)
    return CallPlan(0.0, latest_s if remote_s is None else min(remote_s, latest_s), "the server first")


def latest_start_s(deadline_s: float, local_s: float | None) -> float:
    """Compute when the device must start to meet the deadline, in seconds from the request. It is 0 if the
    run time is unknown.

    >>> latest_start_s(0.1, 0.02), latest_start_s(0.1, 0.2), latest_start_s(0.1, None)
    (0.068, 0.0, 0.0)
    """
    if local_s is None:
        return 0.0
    return max(0.0, deadline_s - RESERVE_RATIO * local_s - RESERVE_S)


def second_opinion(
    confidence: float, threshold: float, left_s: float, remote_s: float | None, objection: str
) -> str:
    """Return the reason that the server does not repeat a run of the device, or "" if it does."""
    if confidence >= threshold:
        return f"confidence {confidence:.3g} of at least {threshold:.3g}"
    if objection:
        return f"confidence {confidence:.3g}, but {objection}"
    if left_s <= (remote_s or 0.0):
        return f"confidence {confidence:.3g}, but {max(0.0, 1000 * left_s):.0f} ms are left"
    return ""


class Rolling:
    """The p95 of the last 64 runs: the fourth largest of 64, the largest of 8."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=WINDOW)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def p95_s(self, enough: int = 1) -> float | None:
        """Return the 95th percentile of the run times in seconds, or None after fewer than ``enough``
        runs."""
        if len(self._seconds) < enough:
            return None
        return sorted(self._seconds)[math.ceil(0.95 * len(self._seconds)) - 1]


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker for the server.

        closed --too many failed or slow--> open --pause over--> probing --it is ready--> half-open
           ^                                  ^------it is not------'                         |
           '------------------------the next call is good------------------------------------'
                                    (a bad one opens it for longer)

    Probing asks whether the server is ready; no request waits for that. The breaker starts open with a probe
    due, because it is unknown whether there is a server.

    Attributes:
        state: ``closed``, ``open``, ``probing`` or ``half-open``.
        pauses: Number of times that it opened since it was last closed.
        trying: Half-open, and the one trial call is running.
    """

    state: str = "open"
    until_s: float = -math.inf
    pauses: int = 0
    calls: int = 0
    failed: float = 0.0
    slow: float = 0.0
    trying: bool = False
    reason: str = "not checked yet"

    @property
    def refusal(self) -> str:
        """Why no request may be sent now; empty if one may."""
        if self.state == "closed" or (self.state == "half-open" and not self.trying):
            return ""
        return f"the server is not used: {self.reason}"

    def probe_due(self, now_s: float) -> bool:
        return self.state == "open" and now_s >= self.until_s

    def probing(self) -> Breaker:
        """Return the state after a readiness probe has started."""
        return replace(self, state="probing")

    def request_sent(self) -> Breaker:
        """Return the state after a request was sent; in half-open it is the only one."""
        return replace(self, trying=self.state == "half-open")

    def probed(self, ready: bool, now_s: float, chance: float, reason: str = "") -> Breaker:
        """Return the state after a probe. ``chance`` is a random number from 0 to 1."""
        return replace(self, state="half-open", trying=False) if ready else self._open(now_s, chance, reason)

    def after_result(self, valid: bool, slow: bool, now_s: float, chance: float, reason: str = "") -> Breaker:
        """Return the state after the result of a request.

        Args:
            slow: Whether it was too late to be useful.
            chance: A random number from 0 to 1.
        """
        if self.state == "half-open":
            return Breaker("closed", reason="") if valid and not slow else self._open(now_s, chance, reason)
        if self.state != "closed":
            return self  # a request sent before it opened
        calls = self.calls + 1
        # Plain means of the first calls, so that the first one is not overweighted.
        weight = max(WEIGHT, 1 / calls)
        failed = self.failed + weight * ((not valid) - self.failed)
        slow_rate = self.slow + weight * (slow - self.slow)
        if calls >= FEWEST_CALLS and (failed >= FAILED_RATE or slow_rate >= SLOW_RATE):
            return self._open(now_s, chance, reason)
        return replace(self, calls=calls, failed=failed, slow=slow_rate)

    def _open(self, now_s: float, chance: float, reason: str) -> Breaker:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.pauses, 20)) * (0.5 + chance)
        return Breaker("open", now_s + pause_s, self.pauses + 1, reason=reason)


@dataclass(frozen=True)
class Retries:
    """The retry budget."""

    left: float = RETRIES_SAVED

    def request(self) -> Retries:
        """Earn a tenth of a retry for a request."""
        return Retries(min(RETRIES_SAVED, self.left + RETRY_SHARE))

    def spend(self) -> Retries | None:
        """Use one. Return None if there is none left."""
        return Retries(self.left - 1) if self.left >= 1 else None
