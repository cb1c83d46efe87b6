"""Rankings."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.tasks.rank.decode import RankOptions, rank


def relevance(logit: float, sigmoid: bool = True) -> float:
    return rank({"score": np.array([[logit]], np.float32)}, RankOptions(sigmoid), None).score


def test_a_logit_becomes_a_relevance() -> None:
    assert relevance(0) == 0.5
    assert relevance(2) == pytest.approx(0.880797)
    assert relevance(-2) == pytest.approx(1 - 0.880797)
    assert relevance(2, sigmoid=False) == 2
    assert 0 <= relevance(-3e38) < 1e-300
    assert relevance(3e38) == 1


def test_passages_are_ordered_and_shown() -> None:
    found = [rank({"score": np.array(value, np.float32)}, RankOptions(), None) for value in (-1, 3, 0)]
    assert [str(each) for each in sorted(found, reverse=True)] == ["0.9526", "0.5000", "0.2689"]
    assert found[1].as_json() == {"score": 0.952574}
