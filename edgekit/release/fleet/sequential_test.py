"""Sequential test of two streams' means: it may be evaluated after every number.

A fixed test that is evaluated repeatedly finds differences that do not exist. This mixture sequential
probability ratio test does so in at most a share ``alpha`` of all experiments, however often and for however
long it is evaluated. Robbins, Ann. Math. Statist. 41 (1970); Johari, Koomen, Pekelis and Walsh,
"Peeking at A/B Tests", KDD 2017, whose likelihood ratio for a normal mixture of variance tau ** 2 is, with d
the difference of the means and V the variance of d:

    ratio = sqrt(V / (V + tau ** 2)) * exp(tau ** 2 * d ** 2 / (2 * V * (V + tau ** 2)))

By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha where the true difference is 0.
V is estimated from the numbers, so there is no result before each stream has ``LEAST`` numbers. This module
reads no clock and runs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST = 100
"""Numbers of each arm before anything is said: with fewer the variance is a guess."""


@dataclass(frozen=True)
class Arm:
    """Number, mean and sum of squared deviations of one stream."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def variance(self) -> float:
        """Return the variance of the numbers; 0 for fewer than two."""
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Two streams and what they say about each other.

    Attributes:
        effect: Tau: a difference of the means that matters. The test is right with any; it is quickest for
            differences of about that size. To be chosen before the first number.
        a: The first stream.
        b: The second.
    """

    effect: float
    a: Arm = Arm()
    b: Arm = Arm()

    @property
    def difference(self) -> float:
        """The mean of ``b`` less that of ``a``."""
        return self.b.mean - self.a.mean

    def interval(self, alpha: float) -> tuple[float, float]:
        """Compute the interval of the true difference with a confidence of 1 - alpha, valid at all times.

        It holds the differences with a ratio below 1 / alpha. It is unbounded before ``LEAST`` numbers.
        """
        variance = _variance(self)
        if variance is None:
            return -math.inf, math.inf
        sum_, tau2 = variance + self.effect**2, self.effect**2
        reach = math.sqrt(2 * variance * sum_ / tau2 * (math.log(sum_ / variance) / 2 - math.log(alpha)))
        return self.difference - reach, self.difference + reach


def _variance(comparison: Comparison) -> float | None:
    """Compute the variance of the difference of the means; None if it is not known yet, or nothing varies."""
    a, b = comparison.a, comparison.b
    if min(a.count, b.count) < LEAST:
        return None
    return a.variance / a.count + b.variance / b.count or None
