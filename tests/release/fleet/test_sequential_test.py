"""The sequential test: right however often it is looked at, and quick where there is a difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from edgekit.release.fleet.sequential_test import LEAST, Mean, mean_interval, trimmed_mean
from edgekit.tensor_spec import Array

ALPHA = 0.05
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


def normal(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return random.normal(0, 0.5, shape)


def hiccups(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Logarithms of times: one in 50 takes some five times as long."""
    return np.where(
        random.random(shape) < 0.02, random.normal(1.5, 0.5, shape), random.normal(0, 0.05, shape)
    )


def rare(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return (random.random(shape) < 0.1).astype(np.float64)


def evidence(a: Array, b: Array, effect: float) -> Array:
    """log_ratio after each number, not its maximum, of many experiments at once [experiments, numbers]."""
    count = np.arange(1, a.shape[1] + 1)

    def mean_and_variance(values: Array) -> tuple[Array, Array]:
        mean = np.cumsum(values, axis=1) / count
        squares = np.cumsum(values**2, axis=1) - count * mean**2
        return mean, squares / np.maximum(count - 1, 1)

    (mean_a, var_a), (mean_b, var_b) = mean_and_variance(a), mean_and_variance(b)
    variance = np.maximum((var_a + var_b) / count, 1e-30)
    both = variance + effect**2
    ratio = np.log(variance / both) / 2 + effect**2 * (mean_b - mean_a) ** 2 / (2 * variance * both)
    ratio[:, : LEAST - 1] = 0
    return ratio


def mean(values: Array) -> Mean:
    found = trimmed_mean(values.tolist())
    assert found == pytest.approx((len(values), values.mean(), values.var(ddof=1) / len(values)))
    return found


@pytest.mark.parametrize("draw", [normal, hiccups, rare])
def test_peeking_after_every_number_finds_nothing_where_nothing_is(draw: Draw) -> None:
    """400 experiments of 2 x 5000 numbers, looked at 5000 times each: at most 5 of 100 may be wrong.

    A test of fixed size at the same level, looked at as often, finds a difference in most of them.
    """
    random = np.random.default_rng(7)
    a, b = draw(random, (400, 5000)), draw(random, (400, 5000))
    found = (evidence(a, b, 0.1) >= -math.log(ALPHA)).any(axis=1)
    assert found.mean() <= ALPHA
    count = np.arange(1, 5001)
    scores = (np.cumsum(b, axis=1) - np.cumsum(a, axis=1)) / (np.sqrt(2 * count) * a.std())
    assert (np.abs(scores[:, LEAST:]) > 1.96).any(axis=1).mean() > 0.3


@pytest.mark.parametrize("shift", [0.1, -0.1])
def test_a_difference_of_that_size_is_found_soon(shift: float) -> None:
    random = np.random.default_rng(3)
    a, b = random.normal(0, 0.2, (200, 1000)), random.normal(shift, 0.2, (200, 1000))
    found = evidence(a, b, 0.1) >= -math.log(ALPHA)
    assert found.any(axis=1).all()
    assert np.median(found.argmax(axis=1)) < 200


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
    assert evidence(a[None], b[None], 0.1).max() > -math.log(ALPHA)


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
