"""The rank test of small fleets: exact, and right however often it is looked at."""

from __future__ import annotations

import math

import numpy as np

from edgekit.release.fleet.sequential_test import LEAST_OF_BOTH, shift_interval
from tests.release.fleet.simulated_fleet import rollout

ALPHA = 0.05


def test_equal_groups_differ_in_at_most_a_share_alpha_of_all_experiments() -> None:
    """Devices join one by one, and the interval is evaluated after each."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(200):
        a, b = rng.standard_cauchy((2, 30))
        intervals = (shift_interval(a[: n - n // 2], b[: n // 2], ALPHA) for n in range(14, 60))
        wrong += any(low > 0 or high < 0 for _, low, high in intervals)
    assert wrong <= 200 * ALPHA


def test_the_least_fleet_is_the_first_with_a_bounded_interval() -> None:
    half = LEAST_OF_BOTH // 2
    for devices, is_bounded in ((half, True), (half - 1, False)):
        _, low, high = shift_interval([0.0] * devices, [1.0] * devices, ALPHA / 3)
        assert (math.isfinite(low), math.isfinite(high)) == (is_bounded, is_bounded)


def test_a_fleet_of_20_stops_a_bundle_that_is_much_worse() -> None:
    ended = rollout(20, 0.25, seed=1, stages=(0.5, 1.0))
    assert (ended.verdict.decision, ended.share) == ("stop", 0.5)
    assert not ended.verdict.is_impossible


def test_a_fleet_that_is_too_small_hears_it_at_once() -> None:
    verdict = rollout(16, 0.25, seed=1, stages=(0.5,)).verdict
    assert (verdict.decision, verdict.is_impossible) == ("wait", True)
    assert verdict.sentence().startswith(
        "no verdict: 16 devices are too few for a verdict, also later: at least 18 must report, half of "
        "them with the new bundle; compare the table, or roll out to a larger fleet; bundle bbbb"
    )
