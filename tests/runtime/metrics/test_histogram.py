"""Histograms: right within their bucket's width, mergeable, of constant size."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.metrics.histogram import BUCKETS, Histogram, at_most, merged

TIMES = st.lists(st.floats(1e-8, 1e4), min_size=1, max_size=300)
HALF_A_BUCKET = 2 ** (1 / 32) - 1 + 1e-9


def recorded(values: Sequence[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(TIMES, st.floats(0.001, 1.0))
def test_quantiles_are_those_of_numpy_within_half_a_bucket(values: list[float], q: float) -> None:
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    # A rank that rounding of q x n moves by one is numpy's or ours: either neighbour will do.
    near = sorted(values)
    place = math.ceil(q * len(values)) - 1
    allowed = {exact, *near[max(0, place - 1) : place + 2]} if abs(q * len(values) % 1) < 1e-9 else {exact}
    found = recorded(values).quantile(q)
    assert min(abs(found / one - 1) for one in allowed) <= HALF_A_BUCKET


@given(TIMES, TIMES)
def test_two_add_up_to_one_of_all(first: list[float], second: list[float]) -> None:
    one, other, both = recorded(first), recorded(second), recorded(first + second)
    one.add(other)
    assert one.sum == pytest.approx(both.sum)
    one.sum = both.sum
    assert one.as_json() == both.as_json()
    assert other.as_json() == recorded(second).as_json()


@given(TIMES)
def test_limits_are_exact(values: list[float]) -> None:
    for limit, found in at_most(recorded(values).as_json()):
        # A logarithm rounds: within a unit in the last place of a limit that is not a power of two.
        least, most = (sum(value <= limit * (1 + sign * 1e-14) for value in values) for sign in (-1, 1))
        assert least <= found <= most
        if math.log2(limit).is_integer():
            assert found == sum(value <= limit for value in values)


@given(TIMES, st.lists(st.floats(1e-8, 1e4)))
def test_two_in_json_add_up_to_one_of_all(first: list[float], second: list[float]) -> None:
    both = recorded(first + second).as_json()
    found = merged(recorded(first).as_json(), recorded(second).as_json())
    assert list(at_most(found)) == list(at_most(both))
    assert (found["count"], found["zero_count"]) == (both["count"], both["zero_count"])
    assert found["sum"] == pytest.approx(both["sum"])


def test_a_boundary_belongs_to_the_bucket_below() -> None:
    assert dict(at_most(recorded([0.25, 0.5, 1.0]).as_json()))[0.5] == 2
    found = recorded([0.5]).as_json()
    assert (found["offset"], found["bucket_counts"]) == (-17, [1])  # (2 ** (-17 / 16), 2 ** -1]


def test_what_is_beyond() -> None:
    histogram = recorded([0.0, 1e-12, 2.0**14, 1e6])
    assert (histogram.zeros, histogram.count, histogram.high) == (2, 4, 1e6)
    assert histogram.quantile(0.5) == 0.0
    assert histogram.as_json()["bucket_counts"] == [2]
    assert Histogram().quantile(0.95) == 0.0
    assert Histogram().as_json()["bucket_counts"] == []


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_what_is_refused(value: float) -> None:
    histogram = Histogram()
    with pytest.raises(ValueError, match="a histogram needs numbers of 0 or more, not "):
        histogram.record(value)
    assert histogram.count == 0


def test_nothings_add_up_too() -> None:
    histogram = recorded([0.0, 1.0])
    histogram.add(recorded([0.0, 0.0]))
    assert (histogram.zeros, histogram.count, histogram.quantile(0.75)) == (3, 4, 0.0)


def test_it_does_not_grow() -> None:
    histogram = Histogram()
    before = sys.getsizeof(histogram._counts)
    for value in np.random.default_rng(0).lognormal(-4, 3, 20_000).tolist():
        histogram.record(value)
    assert sys.getsizeof(histogram._counts) == before <= 9 * BUCKETS


def test_a_copy_is_its_own_and_clearing_begins_anew() -> None:
    histogram = recorded([0.1, 0.2])
    copied = histogram.copy()
    histogram.clear()
    assert histogram.as_json() == Histogram().as_json()
    assert copied.as_json() == recorded([0.1, 0.2]).as_json()
