"""Fidelity of embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.embed import Embedding
from edgekit.tasks.embed.metric import mean_cosine


def test_mean_cosine() -> None:
    a, b, opposite = (Embedding(np.array(v, np.float32)) for v in ([1, 0], [1, 1], [-1, 0]))
    assert mean_cosine([a, a], [a, b]) == pytest.approx((1 + 0.5**0.5) / 2)
    assert mean_cosine([a], [opposite]) == 0
