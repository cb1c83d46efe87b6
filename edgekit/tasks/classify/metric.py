"""Classes: the fraction of samples with the same best class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.classify import Classes


def top1_agreement(reference: Sequence[Classes], predictions: Sequence[Classes]) -> float:
    """Compute the fraction (0 to 1) of samples with the same best class."""
    return float(np.mean([a.indices[0] == b.indices[0] for a, b in zip(reference, predictions, strict=True)]))


def top1_margin(prediction: Classes) -> float:
    """Return the score of the best class over that of the next one."""
    return float(prediction.scores[0] - prediction.scores[1]) if len(prediction.scores) > 1 else 1.0


METRIC = TaskMetric(
    "top-1 agreement",
    top1_agreement,
    # Lite0's best int8 changes 9 of 500 answers, none of the 458 with a margin above .1.
    minimum=0.98,
    margin=top1_margin,
    reference_options={"top": 2},
    variant_options={"top": 1},
)
