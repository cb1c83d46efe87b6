"""Counts: 1 - mean absolute error, relative to the float model's counts."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit_count.prediction import Count


def count_agreement(reference: Sequence[Count], predictions: Sequence[Count]) -> float | None:
    """0 to 1; None where the float model counts nobody."""
    people = sum(count.people for count in reference)
    error = sum(abs(a.people - b.people) for a, b in zip(reference, predictions, strict=True))
    return max(0.0, 1 - error / people) if people else None


METRIC = TaskMetric("count agreement", count_agreement, minimum=0.95)
