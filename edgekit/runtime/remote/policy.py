"""When a server is asked, when the device answers itself: decisions only, no clock, no thread, no socket.

    plan = decide("remote-first", deadline_s, local_s, remote_s, why_not)
    plan.remote_at_s, plan.local_at_s      # seconds after the request came; None: not at all

All instants are the caller's, in seconds, so that 10,000 schedules are tested in a second.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

POLICIES = ("local-only", "local-first", "remote-first", "confidence")
RESERVE_RATIO, RESERVE_S = 1.5, 0.002
"""Kept of a deadline for the local answer: its p95 with room for a busy machine, and the hand-over."""
WINDOW = 64
"""Runs that a p95 is taken over."""
ENOUGH = 8
"""Runs before there is a p95 to hedge by."""

WEIGHT = 0.2
"""Of the newest call in the rates of failed and slow calls."""
FEWEST_CALLS = 4
FAILED_RATE, SLOW_RATE = 0.5, 0.8
"""From which on the breaker opens: half of the calls fail, or nearly all come too late to be of use."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""A server that failed is asked again after it, doubled each time; a factor of 0.5 to 1.5 drawn by chance
keeps a fleet from coming back in one second."""

RETRY_SHARE, RETRIES_SAVED = 0.1, 5.0
"""Retries for each request, and how many are saved up at most: they must not multiply an outage's load."""


@dataclass(frozen=True)
class CallPlan:
    """Who is asked, and when.

    Attributes:
        remote_at_s: The server, so long after the request came; None: not.
        local_at_s: The device; None: only where the server gives no answer.
        why: In words.
    """

    remote_at_s: float | None
    local_at_s: float | None
    why: str


def decide(
    policy: str, deadline_s: float, local_s: float | None, remote_s: float | None, why_not: str
) -> CallPlan:
    """Who answers a request.

    Args:
        policy: One of ``POLICIES``.
        deadline_s: Of the answer.
        local_s: p95 of the device; None: nobody knows.
        remote_s: p95 of the server; None: nobody knows yet.
        why_not: Why the server must not be asked now; empty where it may.

    >>> decide("remote-first", 0.1, 0.02, 0.03, "")
    CallPlan(remote_at_s=0.0, local_at_s=0.03, why='the server first')
    >>> decide("remote-first", 0.1, 0.02, 0.09, "").local_at_s     # what the device needs is kept
    0.068
    """
    if policy == "local-only":
        return CallPlan(None, 0.0, "local-only")
    if policy != "remote-first":
        return CallPlan(None, 0.0, "the device first")
    if why_not:
        return CallPlan(None, 0.0, why_not)
    latest_s = latest_start_s(deadline_s, local_s)
    return CallPlan(0.0, latest_s if remote_s is None else min(remote_s, latest_s), "the server first")


def latest_start_s(deadline_s: float, local_s: float | None) -> float:
    """When the device must begin, so that it answers in time: at once where nobody knows how long it takes.

    >>> latest_start_s(0.1, 0.02), latest_start_s(0.1, 0.2), latest_start_s(0.1, None)
    (0.068, 0.0, 0.0)
    """
    if local_s is None:
        return 0.0
    return max(0.0, deadline_s - RESERVE_RATIO * local_s - RESERVE_S)


def second_opinion(
    confidence: float, threshold: float, left_s: float, remote_s: float | None, why_not: str
) -> str:
    """Why the server is not asked about what the device answered; empty where it is.

    Args:
        confidence: Of the device in its answer.
        threshold: From which on it is enough.
        left_s: Of the deadline.
        remote_s: p95 of the server; None: nobody knows yet.
        why_not: Why it must not be asked now.
    """
    if confidence >= threshold:
        return f"confidence {confidence:.3g} of at least {threshold:.3g}"
    if why_not:
        return f"confidence {confidence:.3g}, but {why_not}"
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
        """None: fewer than ``enough`` runs so far."""
        if len(self._seconds) < enough:
            return None
        return sorted(self._seconds)[math.ceil(0.95 * len(self._seconds)) - 1]


@dataclass(frozen=True)
class Breaker:
    """Whether a server is worth asking.

        closed --too many failed or slow--> open --pause over--> probing --it is ready--> half-open
           ^                                  ^------it is not------'                         |
           '------------------------the next call is good------------------------------------'
                                    (a bad one opens it for longer)

    Probing asks whether the server is ready; no request waits for that. It starts as open and due: nobody
    knows yet whether there is a server.

    Attributes:
        state: ``closed``, ``open``, ``probing`` or ``half-open``.
        until_s: When an open one may probe.
        pauses: How often it opened since it was last closed.
        calls: Since it was last closed.
        failed, slow: Rates, the newest call weighs most.
        trying: Half-open, and the one call that decides is under way.
        why: What made it open.
    """

    state: str = "open"
    until_s: float = -math.inf
    pauses: int = 0
    calls: int = 0
    failed: float = 0.0
    slow: float = 0.0
    trying: bool = False
    why: str = "it was not asked yet"

    @property
    def why_not(self) -> str:
        """Why no request may be sent now; empty where one may."""
        if self.state == "closed" or (self.state == "half-open" and not self.trying):
            return ""
        return f"the server is left alone: {self.why}"

    def probe_due(self, now_s: float) -> bool:
        return self.state == "open" and now_s >= self.until_s

    def probing(self) -> Breaker:
        """Somebody asks whether it is ready."""
        return replace(self, state="probing")

    def asked(self) -> Breaker:
        """A request is on its way; in half-open the only one."""
        return replace(self, trying=self.state == "half-open")

    def probed(self, ready: bool, now_s: float, chance: float, why: str = "") -> Breaker:
        """What the probe found. ``chance`` is drawn from 0 to 1."""
        return replace(self, state="half-open", trying=False) if ready else self._open(now_s, chance, why)

    def heard(self, good: bool, slow: bool, now_s: float, chance: float, why: str = "") -> Breaker:
        """How a request to the server ended.

        Args:
            good: It was answered, and soundly.
            slow: Too late to be of use.
            now_s: On the caller's clock.
            chance: Drawn from 0 to 1.
            why: What was bad.
        """
        if self.state == "half-open":
            return Breaker("closed", why="") if good and not slow else self._open(now_s, chance, why)
        if self.state != "closed":
            return self  # one that was under way when it opened
        calls = self.calls + 1
        # Means of all calls while they are few, so that the first one does not count for five.
        weight = max(WEIGHT, 1 / calls)
        failed = self.failed + weight * ((not good) - self.failed)
        late = self.slow + weight * (slow - self.slow)
        if calls >= FEWEST_CALLS and (failed >= FAILED_RATE or late >= SLOW_RATE):
            return self._open(now_s, chance, why)
        return replace(self, calls=calls, failed=failed, slow=late)

    def _open(self, now_s: float, chance: float, why: str) -> Breaker:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.pauses, 20)) * (0.5 + chance)
        return Breaker("open", now_s + pause_s, self.pauses + 1, why=why)


@dataclass(frozen=True)
class Retries:
    """How many more retries may be spent."""

    left: float = RETRIES_SAVED

    def request(self) -> Retries:
        """A request earns a tenth of one."""
        return Retries(min(RETRIES_SAVED, self.left + RETRY_SHARE))

    def spend(self) -> Retries | None:
        """One less; None: there is none."""
        return Retries(self.left - 1) if self.left >= 1 else None
