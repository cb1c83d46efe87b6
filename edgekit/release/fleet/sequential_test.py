"""Sequential tests of two groups: they may be evaluated after every number.

A fixed test that is evaluated repeatedly finds differences that do not exist. The mixture sequential
probability ratio test of two means does so in at most a share ``alpha`` of all experiments, however often and
for however long it is evaluated. Robbins, Ann. Math. Statist. 41 (1970); Johari, Koomen, Pekelis and Walsh,
"Peeking at A/B Tests", KDD 2017, whose likelihood ratio for a normal mixture of variance tau ** 2 is, with d
the difference of the means and V the variance of d:

    ratio = sqrt(V / (V + tau ** 2)) * exp(tau ** 2 * d ** 2 / (2 * V * (V + tau ** 2)))

By Ville's inequality it ever exceeds 1 / alpha with probability at most alpha if the true difference is 0.
V is estimated from the numbers, so there is no result before each group has ``LEAST`` numbers.

Small fleets never have as many. Their test is by ranks: it assumes no distribution and estimates no variance.
The interval of the shift between two groups is that of Moses, from the distribution of Mann and Whitney's U:
Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd edition, section 4.3. Numbers only join the
groups, so every count n of both together is evaluated on one set of numbers. Its interval has the level
alpha / (n (n + 1)), and these add up to at most alpha for all counts together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

LEAST = 100
"""Minimum numbers of each group: with fewer the variance is a guess."""
LEAST_OF_BOTH = 18
"""Smallest fleet that can have a verdict at the level of three measures: nine devices with each bundle."""


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


def shift_interval(a: Sequence[float], b: Sequence[float], alpha: float) -> tuple[float, float, float]:
    """Compute the shift from ``a`` to ``b``, and its interval with a confidence of 1 - alpha.

    The shift is the median of all differences. The interval is valid at all counts, and unbounded if
    there are too few numbers.

    >>> shift_interval([0.0] * 10, [1.0] * 10, 0.05)
    (1.0, 1.0, 1.0)
    """
    differences = np.sort(np.subtract.outer(np.asarray(b, np.float64), np.asarray(a, np.float64)).ravel())
    if not differences.size:
        return 0.0, -math.inf, math.inf
    count = len(a) + len(b)
    left_out = _left_out(len(a), len(b), alpha / (count * (count + 1)) / 2)
    if left_out < 1:
        return float(np.median(differences)), -math.inf, math.inf
    low, high = differences[left_out - 1], differences[len(differences) - left_out]
    return float(np.median(differences)), float(low), float(high)


@lru_cache(maxsize=64)
def _left_out(a: int, b: int, tail: float) -> int:
    """Return the largest k with P(U <= k - 1) <= tail, for Mann and Whitney's U of groups of ``a`` and ``b``.

    The numbers of ways to each U are the coefficients of the Gaussian binomial, the product over i from 1 to
    a of (1 - x^(b + i)) / (1 - x^i).
    """
    ways = np.zeros(a * b + 1)
    ways[0] = 1
    for i in range(1, a + 1):
        if b + i < len(ways):
            ways[b + i :] = ways[b + i :] - ways[: -(b + i)]
        for residue in range(min(i, len(ways))):
            ways[residue::i] = np.cumsum(ways[residue::i])
    shares = np.cumsum(ways) / math.comb(a + b, a)
    return int(np.searchsorted(shares, tail, side="right"))
