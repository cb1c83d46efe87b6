"""Difference of two times with a confidence interval, from repeated pairs.

The estimate is that of Hodges and Lehmann: the median of the means of all pairs of values (Walsh averages).
Its interval is the one of Tukey that belongs to Wilcoxon's signed-rank test: it counts from both ends of the
sorted Walsh averages as many as that test leaves out (Hollander, Wolfe, Chicken: Nonparametric Statistical
Methods, 3rd edition, sections 3.2 and 3.3). It assumes that values are independent and spread alike to both
sides of what is sought, not that they are normal: a value far out moves it little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensor_spec import Array


class Interval(NamedTuple):
    """Estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def centre_interval(values: Sequence[float] | Array, confidence: float = 0.95) -> Interval:
    """Estimate the centre of symmetry of the distribution that the values are drawn from.

    Args:
        values: Independent values, at least 6 for 95 %, as 2 / 2**6 is the first share below 5 %.
        confidence: Least probability, 0 to 1, that the interval contains the centre.

    Raises:
        UsageError: there are too few values for that confidence.

    >>> centre_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Interval(estimate=3.5, low=1.0, high=6.0)
    """
    count = len(values)
    array = np.asarray(values, np.float64)
    first, second = np.triu_indices(count)
    walsh = np.sort((array[first] + array[second]) / 2)
    left_out = _left_out(count, (1 - confidence) / 2)
    if left_out < 1:
        raise UsageError(f"{count} pairs are too few for an interval at {confidence:.0%}")
    low, high = walsh[left_out - 1], walsh[len(walsh) - left_out]
    return Interval(float(np.median(walsh)), float(low), float(high))


def _left_out(count: int, tail: float) -> int:
    """Return the largest k with P(T <= k - 1) <= tail, for the signed-rank statistic T of ``count`` values.

    T is the sum of the ranks 1 to n that a fair coin picks, so that each subset of ranks is as likely.
    """
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    shares = np.cumsum(ways / 2.0**count)
    return int(np.searchsorted(shares, tail, side="right"))
