from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.accuracy.estimates import Resampled, estimate, loss, resamples
from edgekit.compiler.evaluate.label_metric import Scores
from edgekit.tensor_spec import Array


def share(right: Array, *, counted: bool) -> Scores:
    def value(weights: Array) -> float:
        return float(weights @ right / weights.sum())

    return Scores(value, 1.0 - right, [""] * len(right), len(right), int(right.sum()) if counted else None)


def estimated(scores: Scores) -> Resampled:
    resampled = estimate(scores, resamples(len(scores.errors)))
    assert resampled is not None
    return resampled


def test_a_share_has_the_interval_of_clopper_and_pearson() -> None:
    found = estimated(share(np.repeat([1, 0], [81, 19]), counted=True)).estimate
    assert found == pytest.approx((0.81, 0.7193, 0.8816), abs=1e-4)  # scipy.stats.binomtest(81, 100)


def test_a_bootstrap_agrees_with_the_normal_interval() -> None:
    value, low, high = estimated(share(np.repeat([1, 0], [600, 400]), counted=False)).estimate
    half = 1.96 * (0.6 * 0.4 / 1000) ** 0.5
    assert (value, low, high) == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=0.006)


@pytest.mark.parametrize(("right", "interval"), [(0, (0.0, 0.3085)), (1, (0.6915, 1.0))])
def test_equal_samples_have_an_interval_too(right: int, interval: tuple[float, float]) -> None:
    found = estimated(share(np.full(10, right), counted=False)).estimate
    assert found[1:] == pytest.approx(interval, abs=1e-4)  # 1 - .025 ** (1 / 10)


def test_nothing_labelled_is_no_estimate() -> None:
    assert estimate(Scores(lambda weights: None, np.zeros(2), ["", ""], 0), resamples(2)) is None


def test_a_loss_is_paired() -> None:
    before = np.repeat([1, 0], [800, 200])
    after = before.copy()
    after[:10] = 0
    scores = [share(right, counted=True) for right in (before, after)]
    first, second = map(estimated, scores)
    found = loss(first, second, scores[1], is_error=False)
    assert found.value == pytest.approx(0.01)
    assert 0 < found.low < 0.01 < found.high < 0.02  # each figure alone is known to +-.025
    assert loss(first, second, scores[1], is_error=True).value == pytest.approx(-0.01)
    same = loss(first, first, scores[0], is_error=False)
    assert same == pytest.approx((0.0, -0.00368, 0.00368), abs=1e-5)
    other = loss(first, first, share(before, counted=False), is_error=False)
    assert other == (0, 0, 0)  # a bound on the share of samples says nothing about another metric
