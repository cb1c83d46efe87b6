"""Fidelity metrics of tasks: how close a variant's predictions are to the float model's.

None of them needs labels. A task without one, e.g. depth, is judged by the SNR of its outputs
(edgekit/compiler/evaluate/fidelity.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.processing.tasks import all_tasks, find_task, has_task
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class TaskMetric:
    """How close the predictions of a variant are to the float model's, for one kind of task.

    Attributes:
        name: As reports show it, e.g. ``self-mAP``.
        compare: (the float model's predictions, the variant's), one each for every sample -> 0 to 1, where 1
            is equal; None where the float model predicts nothing, and the SNR is used instead.
        drop: The accepted drop, 0 to 1, unless the user gives one.
        counted: Whether it is a proportion of the samples. Then the difference of one sample may be chance,
            and candidates are compared by their SNR, which is finer.
        reference_options: Decoding options for the float model's predictions.
        variant_options: Decoding options for a variant's predictions.
        count_kept: (the float model's predictions, the variant's) -> how many of the float model's sure
            findings the variant keeps at the scores that apps use; None where that says no more than
            ``compare``.
        counted_options: Decoding options for the float model's predictions that ``count_kept`` takes.
        change: (the float model's predictions, the variant's) -> how much a small change of the outputs
            changes the predictions, as a power: 0 where they are equal, 1 where nothing is found again. For
            what ``compare`` is too coarse for; predictions must have ``scores``. None: the SNR tells.
    """

    name: str
    compare: Callable[[Sequence[Any], Sequence[Any]], float | None]
    drop: float
    counted: bool = False
    reference_options: Mapping[str, Json] = field(default_factory=dict)
    variant_options: Mapping[str, Json] = field(default_factory=dict)
    count_kept: Callable[[Sequence[Any], Sequence[Any]], Kept] | None = None
    counted_options: Mapping[str, Json] = field(default_factory=dict)
    change: Callable[[Sequence[Any], Sequence[Any]], float] | None = None


def metric_of(kind: str) -> TaskMetric | None:
    """The metric of a task; None where it has none."""
    task = find_task(kind) if has_task(kind) else None
    if task is None or not task.metric:
        return None
    metric: TaskMetric = task.load(task.metric).METRIC
    return metric


def metric_named(name: str) -> TaskMetric | None:
    """The metric of this name; None for the SNR and for metrics that need labels."""
    metrics = (metric_of(task.kind) for task in all_tasks())
    return next((metric for metric in metrics if metric is not None and metric.name == name), None)
