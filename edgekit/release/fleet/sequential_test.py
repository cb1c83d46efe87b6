"""Sequential test of two groups' means: it may be evaluated after every number.

A fixed test that is evaluated repeatedly finds differences that do not exist. This mixture sequential
probability ratio test does so in at most a share ``alpha`` of all experiments, however often and for however
long it is evaluated. Robbins, Ann. Math. Statist. 41 (1970); Johari, Koomen, Pekelis and Walsh,
"Peeking at A/B Tests", KDD 2017, whose likelihood ratio for a normal mixture of variance tau ** 2 is, with d
the difference of the means and V the variance of d:

    ratio = sqrt(V / (V + tau ** 2)) * exp(tau ** 2 * d ** 2 / (2 * V * (V + tau ** 2)))

By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha if the true difference is 0.
V is estimated from the numbers, so there is no result before each group has ``LEAST`` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LEAST = 100
"""Minimum numbers of each group: with fewer the variance is a guess."""


class Mean(NamedTuple):
    """Mean of a group and the variance of this mean."""

    size: int = 0
    mean: float = 0.0
    variance: float = 0.0


def trimmed_mean(values: Sequence[float], cut: int = 0) -> Mean:
    """Compute the mean of a group without ``cut`` values at both ends, and its variance by winsorized
    squares. Source: Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61 (1974).
    """
    ordered = sorted(values)
    count = len(ordered)
    if count < 2:
        return Mean(count, *ordered)
    cut = min(cut, (count - 1) // 2)
    inner = ordered[cut : count - cut]
    winsorized = [inner[0]] * cut + inner + [inner[-1]] * cut
    centre = math.fsum(winsorized) / count
    squares = math.fsum((value - centre) ** 2 for value in winsorized)
    return Mean(count, math.fsum(inner) / len(inner), squares / max(1, len(inner) * (len(inner) - 1)))


def mean_interval(a: Mean, b: Mean, effect: float, alpha: float) -> tuple[float, float, float]:
    """Compute the difference from ``a`` to ``b``, and its interval with a confidence of 1 - alpha.

    The interval is valid at all times. It has the differences with a ratio below 1 / alpha, and is unbounded
    before ``LEAST`` numbers. If nothing varies, it is the difference itself.

    Args:
        effect: Tau: a difference that matters. The test is valid with any, and quickest for differences of
            about that size. It must be chosen before the first number.
        alpha: Maximum share of false results.
    """
    difference, variance = b.mean - a.mean, a.variance + b.variance
    if min(a.size, b.size) < LEAST:
        return difference, -math.inf, math.inf
    if not variance:
        return difference, difference, difference
    both, tau2 = variance + effect**2, effect**2
    reach = math.sqrt(2 * variance * both / tau2 * (math.log(both / variance) / 2 - math.log(alpha)))
    return difference, difference - reach, difference + reach
