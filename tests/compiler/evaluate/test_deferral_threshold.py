"""The threshold of a deferral: its bound holds in the share of draws that it states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.evaluate.deferral_threshold import NEVER, find_threshold, samples_needed
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.tensor_spec import Array

DRAWS = 1000
LIMIT, CONFIDENCE = 0.01, 0.95


def population(kind: str) -> tuple[Array, Array]:
    """Margins, and how likely the two models differ there: as many points as make the risk exact."""
    rng = np.random.default_rng(11)
    margins = rng.beta(1.2, 0.6, 200_000)
    if kind == "ties":
        margins = np.round(margins, 1)
    likely = {
        "smooth": 0.4 * (1 - margins) ** 2 + 0.002,
        "ties": 0.4 * (1 - margins) ** 2 + 0.002,
        "flat": np.full(margins.shape, 0.03),  # the margin says nothing
        "just above": np.full(margins.shape, LIMIT * 1.02),  # nearly everything may be kept, and not quite
    }[kind]
    order = np.argsort(margins)
    return margins[order], likely[order]


class Risk:
    """The share of a population's answers that differ with a threshold: exact."""

    def __init__(self, margins: Array, likely: Array) -> None:
        self._margins = margins
        self._above = np.append(np.cumsum(likely[::-1])[::-1], 0.0) / len(margins)

    def of(self, threshold: float) -> float:
        return float(self._above[np.searchsorted(self._margins, threshold, side="right")])


@pytest.mark.parametrize("samples", [299, 500])
@pytest.mark.parametrize("kind", ["smooth", "ties", "flat", "just above"])
def test_the_bound_holds_in_the_stated_share_of_draws(kind: str, samples: int) -> None:
    margins, likely = population(kind)
    risk = Risk(margins, likely)
    rng = np.random.default_rng(samples)
    broken = naive = 0
    for _ in range(DRAWS):
        drawn = rng.integers(0, len(margins), samples)
        differs = rng.random(samples) < likely[drawn]
        found = find_threshold(margins[drawn], differs, LIMIT, CONFIDENCE)
        assert found is not None
        assert found.bound <= LIMIT + 1e-9
        broken += risk.of(found.threshold) > LIMIT
        naive += risk.of(_without_a_bound(margins[drawn], differs)) > LIMIT
    most = 1 - CONFIDENCE + 3 * (CONFIDENCE * (1 - CONFIDENCE) / DRAWS) ** 0.5
    assert broken / DRAWS <= most
    assert naive / DRAWS > most  # so the test would see a threshold that is too low


def _without_a_bound(margins: Array, differs: Array) -> float:
    """The lowest threshold with at most LIMIT of the samples differing."""
    sure = np.sort(margins[differs])[::-1]
    most = int(LIMIT * len(margins))
    return float(sure[most]) if len(sure) > most else NEVER


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=59, max_size=200),
    st.sampled_from([0.05, 0.1, 0.3]),
)
def test_it_is_the_lowest_threshold_whose_bound_is_within_the_limit(
    samples: list[tuple[int, bool]], limit: float
) -> None:
    margins = np.array([margin / 20 for margin, _ in samples])
    differs = np.array([differ for _, differ in samples])

    def bound(threshold: float) -> float:
        return upper_bound(int((differs & (margins > threshold)).sum()), len(samples))

    found = find_threshold(margins, differs, limit)
    assert found is not None
    assert bound(found.threshold) <= limit + 1e-9
    assert found.bound == bound(found.threshold)
    assert found.deferred == pytest.approx((margins <= found.threshold).mean())
    lower = [t for t in (NEVER, *np.unique(margins)) if t < found.threshold]
    assert all(bound(t) > limit for t in lower)


def test_too_few_samples_show_nothing() -> None:
    assert samples_needed(LIMIT) == 299
    assert find_threshold([0.9] * 298, [False] * 298, LIMIT) is None
    found = find_threshold([0.9] * 299, [False] * 299, LIMIT)
    assert found is not None
    assert (found.threshold, found.deferred, found.differing) == (NEVER, 0.0, 0)
