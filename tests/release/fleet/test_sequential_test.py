"""The sequential test: right however often it is looked at, and quick where there is a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.release.fleet.sequential_test import Mean, mean_interval, trimmed_mean
from edgekit.tensor_spec import Array

ALPHA = 0.05


def mean(values: Array) -> Mean:
    found = trimmed_mean(values.tolist())
    assert found == pytest.approx((len(values), values.mean(), values.var(ddof=1) / len(values)))
    return found


def test_the_interval_and_the_test_agree() -> None:
    random = np.random.default_rng(2)
    for shift in (0.0, 0.05, 0.2):
        a, b = random.normal(0, 0.2, 300), random.normal(shift, 0.2, 300)
        difference, low, high = mean_interval(mean(a), mean(b), 0.1, ALPHA)
        assert low < difference < high
        variance = mean(a).variance + mean(b).variance
        both = variance + 0.01
        edge = math.log(variance / both) / 2 + 0.01 * (high - difference) ** 2 / (2 * variance * both)
        assert edge == pytest.approx(-math.log(ALPHA))
    assert low > 0 > low - 1  # 0.2 is told from 0


def test_the_interval_holds_at_all_times() -> None:
    random = np.random.default_rng(5)
    missed = 0
    for _ in range(60):
        a, b = random.normal((0.0, 0.1), 0.3, (600, 2)).T
        means = ((trimmed_mean(a[:n]), trimmed_mean(b[:n])) for n in range(2, 601))
        intervals = (mean_interval(*pair, 0.1, ALPHA) for pair in means)
        missed += any(not low <= 0.1 <= high for _, low, high in intervals)
    assert missed <= 3


def test_groups_that_do_not_vary_differ_by_their_difference() -> None:
    ones, twos = trimmed_mean([1.0] * 300), trimmed_mean([2.0] * 300)
    assert mean_interval(ones, twos, 0.1, ALPHA) == (1.0, 1.0, 1.0)
    assert mean_interval(ones, twos._replace(size=99), 0.1, ALPHA) == (1.0, -math.inf, math.inf)
    assert (trimmed_mean([]), trimmed_mean([2.0])) == (Mean(), Mean(1, 2.0))
