"""Embeddings: their cosine similarity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.embed import Embedding


def mean_cosine(reference: Sequence[Embedding], predictions: Sequence[Embedding]) -> float:
    """Compute the mean cosine similarity to the float model's embeddings, at least 0."""
    pairs = zip(reference, predictions, strict=True)
    return max(0.0, float(np.mean([a.cosine(b) for a, b in pairs])))


METRIC = TaskMetric("cosine", mean_cosine, minimum=0.98)
