"""Whether two streams of numbers differ in the mean: a test that may be looked at after every number.

A fixed test that is looked at again and again finds a difference where there is none. This one does so in at
most a share ``alpha`` of all experiments, however often and for however long it is looked at: a mixture
sequential probability ratio test. Robbins, Ann. Math. Statist. 41 (1970); Johari, Koomen, Pekelis and Walsh,
"Peeking at A/B Tests", KDD 2017, whose likelihood ratio for a normal mixture of variance tau ** 2 is, with d
the difference of the means and V the variance of d:

    ratio = sqrt(V / (V + tau ** 2)) * exp(tau ** 2 * d ** 2 / (2 * V * (V + tau ** 2)))

By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha where the true difference is 0;
its greatest value so far gives p. V is estimated from the numbers, which is why none are judged before
``LEAST`` of each. Decisions only: no clock, nothing is run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LEAST = 100
"""Numbers of each arm before anything is said: with fewer the variance is a guess."""


@dataclass(frozen=True)
class Arm:
    """What is known of one stream: Welford's recurrence (Technometrics 4, 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def added(self, value: float) -> Arm:
        """With one number more."""
        count = self.count + 1
        off = value - self.mean
        mean = self.mean + off / count
        return Arm(count, mean, self.squares + off * (value - mean))

    @property
    def variance(self) -> float:
        """Of the numbers; 0 of fewer than two."""
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Two streams and what they say about each other.

    Attributes:
        effect: Tau: a difference of the means that matters. The test is right with any; it is quickest for
            differences of about that size. To be chosen before the first number.
        a: The first stream.
        b: The second.
        log_ratio: The logarithm of the greatest likelihood ratio so far.
    """

    effect: float
    a: Arm = Arm()
    b: Arm = Arm()
    log_ratio: float = 0.0

    @property
    def difference(self) -> float:
        """The mean of ``b`` less that of ``a``."""
        return self.b.mean - self.a.mean

    @property
    def p(self) -> float:
        """The p-value, valid whenever it is looked at; it never rises."""
        return math.exp(-self.log_ratio)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Where the true difference lies with a confidence of 1 - alpha, at all times at once.

        The differences at which the ratio would be below 1 / alpha; unbounded before ``LEAST`` numbers.
        """
        variance = _variance(self)
        if variance is None:
            return -math.inf, math.inf
        sum_, tau2 = variance + self.effect**2, self.effect**2
        reach = math.sqrt(2 * variance * sum_ / tau2 * (math.log(sum_ / variance) / 2 - math.log(alpha)))
        return self.difference - reach, self.difference + reach


def step(comparison: Comparison, to_b: bool, value: float) -> Comparison:
    """One number more, in the stream of ``b`` or in that of ``a``."""
    if to_b:
        now = replace(comparison, b=comparison.b.added(value))
    else:
        now = replace(comparison, a=comparison.a.added(value))
    variance = _variance(now)
    if variance is None:
        return now
    tau2 = now.effect**2
    sum_ = variance + tau2
    log_ratio = math.log(variance / sum_) / 2 + tau2 * now.difference**2 / (2 * variance * sum_)
    return replace(now, log_ratio=max(now.log_ratio, log_ratio))


def _variance(comparison: Comparison) -> float | None:
    """Of the difference of the means; None where it is not known yet, or nothing varies."""
    a, b = comparison.a, comparison.b
    if min(a.count, b.count) < LEAST:
        return None
    return a.variance / a.count + b.variance / b.count or None
