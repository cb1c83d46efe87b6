"""Classes: the fraction of samples with the same best class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.classify import Classes


def top1_agreement(reference: Sequence[Classes], predictions: Sequence[Classes]) -> float:
    """Compute the fraction (0 to 1) of samples with the same best class."""
    return float(np.mean([a.indices[0] == b.indices[0] for a, b in zip(reference, predictions, strict=True)]))


METRIC = TaskMetric(
    "top-1 agreement",
    top1_agreement,
    drop=0.1,
    counted=True,
    reference_options={"top": 1},
    variant_options={"top": 1},
)
