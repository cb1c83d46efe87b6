"""Outputs are judged by their worst part and channel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score
from edgekit.compiler.evaluate.output_channels import OutputChannels
from edgekit.tensor_spec import Array


def channels(count: int, size: int, bounded_from: int | None = None) -> OutputChannels:
    """Channels along the first axis; those from ``bounded_from`` on are scores of one Sigmoid."""
    numbers = np.arange(count)
    bounded = numbers >= (count if bounded_from is None else bounded_from)
    units = np.where(bounded, count, numbers)
    return OutputChannels(np.repeat(numbers, size), units, bounded, numbers < 0, None)


def judged(expected: Array, actual: Array, of: OutputChannels) -> Fidelity:
    return Evaluator(None, [{"y": expected}], channels={"y": of}).evaluate([{"y": actual}])


def stored(values: Array, steps: int = 255) -> Array:
    """The values after int8 with one scale."""
    scale = np.ptp(values) / steps
    rounded: Array = np.rint(values / scale) * scale
    return rounded


def test_lost_scores_are_seen_behind_the_pixels() -> None:
    rng = np.random.default_rng(0)
    expected = np.concatenate([rng.uniform(0, 320, (4, 90)), rng.uniform(0, 1, (3, 90))])
    of = channels(7, 90, 4)
    found = judged(expected, stored(expected), of)
    whole = Evaluator(None, [{"y": expected}]).evaluate([{"y": stored(expected)}])
    assert whole.snr_db > 45
    assert found.snr_db < 6
    assert found.rank == found.score.value == found.snr_db
    assert (whole.score.metric, found.score.metric) == ("SNR", "part SNR")
    missed = Goal().missed(Fidelity(Score("part SNR", 15.0, "dB"), 15.0))
    assert missed == "part SNR 15.0 dB; 20.0 dB is required"


@pytest.mark.parametrize("ratio", [10, 100, 1e3, 1e4])
def test_channels_of_one_layer_that_differ_in_size(ratio: float) -> None:
    rng = np.random.default_rng(1)
    expected = rng.normal(0, 1, (32, 144)) * np.r_[np.full(4, ratio), np.ones(28)][:, None]
    found = judged(expected, stored(expected), channels(32, 144))
    assert found.snr_db < (30 if ratio == 10 else 12)
    assert bool(Goal().missed(found)) == (ratio > 10)
    exact = judged(expected, expected, channels(32, 144))
    assert (exact.snr_db, Goal().missed(exact)) == (math.inf, "")


def test_a_channel_that_is_constant_is_refused_whatever_its_decibels() -> None:
    rng = np.random.default_rng(2)
    expected = 1008 + rng.normal(0, 2, (3, 50))
    expected[1:] += rng.normal(0, 400, (2, 50))
    found = judged(expected, np.rint(expected / 16) * 16, channels(3, 50))
    assert found.snr_db > 40
    assert found.lost == "output y: channel 0 (1 of 3)"
    for goal in (Goal(), Goal(snr_db=1.0), Goal(drop=0.9)):
        assert (
            goal.missed(found)
            == "output y: channel 0 (1 of 3) of the float model vary, but are constant in int8"
        )
    assert Goal(snr_db=-math.inf).missed(found) == ""


def test_a_class_that_is_in_no_sample_is_not_judged_by_its_own_size() -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 1, (5, 200))
    scores[4] = rng.uniform(0, 0.002, 200)
    found = judged(scores, stored(scores), channels(5, 200, 0))
    assert (found.lost, found.score.metric) == ("", "SNR")
    assert Goal().missed(found) == ""


def test_a_value_that_is_not_finite_is_worth_nothing() -> None:
    expected = np.concatenate([np.full((4, 9), 320.0), np.ones((3, 9))])
    broken = expected.copy()
    broken[5, 0] = math.nan
    assert judged(expected, broken, channels(7, 9)).snr_db == -math.inf
    assert judged(expected, expected[:6], channels(7, 9)).snr_db == -math.inf


def test_noise_in_a_channel_that_is_zero_counts() -> None:
    expected = np.random.default_rng(5).normal(0, 1, (3, 50))
    expected[1] = 0
    broken = expected.copy()
    broken[1] = 1
    assert judged(expected, broken, channels(3, 50)).snr_db < 5
    assert judged(expected * 0, broken, channels(3, 50)).snr_db == -math.inf
