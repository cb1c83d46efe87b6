"""The number of samples that would prove a rate of changes, compared with its definition."""

from __future__ import annotations

import pytest

from edgekit.compiler.evaluate import proof
from edgekit.compiler.evaluate.proof import more_to_count
from edgekit.runtime.clopper_pearson import binomial_cdf, upper_bound


@pytest.mark.parametrize("low", [0.9, 0.95, 0.98])
@pytest.mark.parametrize("total", [1, 5, 21, 43, 128])
def test_the_number_is_the_first_whose_bound_proves_it(
    low: float, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "SEARCHED", 300)
    for changed in range(min(total, 6)):
        rate = changed / total
        sizes = (n for n in range(total, 300) if 1 - upper_bound(round(rate * n), n) >= low)
        assert more_to_count(changed, total, low) == next(sizes, 300) - total


def test_a_rate_that_no_number_proves_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 6 s of CPU time for one of 21 samples of a classifier."""
    calls: list[int] = []

    def counted(events: int, trials: int, rate: float) -> float:
        calls.append(trials)
        return binomial_cdf(events, trials, rate)

    monkeypatch.setattr(proof, "binomial_cdf", counted)
    assert more_to_count(2, 21, 0.95) == proof.SEARCHED - 21
    assert not calls
    assert more_to_count(1, 21, 0.95) == proof.SEARCHED - 21
    assert len(calls) <= proof.SEARCHED
