"""Sequential rank test of two small groups, for fleets that never have the numbers of
:mod:`edgekit.release.fleet.sequential_test`. It assumes no distribution and estimates no variance.

The interval of the shift between two groups is that of Moses, from the distribution of Mann and Whitney's U:
Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd edition, section 4.3. Numbers only join the
groups, so every count n of both together is evaluated on one set of numbers. Its interval has the level
alpha / (n (n + 1)), and these add up to at most alpha for all counts together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

LEAST_OF_BOTH = 18
"""Smallest fleet that can have a verdict at the level of three measures: nine devices with each bundle."""


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
