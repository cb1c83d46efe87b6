"""Fidelity metrics of tasks: closeness of a variant's predictions to the float model's.

The metrics do not need labels. A task without one, e.g. depth, is judged by the SNR of its outputs
(edgekit/compiler/evaluate/fidelity.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.processing.task_table import all_tasks, find_task, has_task
from edgekit.tensor_spec import Array, Json

TOLERANCE = 0.01
"""A score is proved if its lower end is at most so far below its limit: then a variant that is further below
passes in one build of 20. Without a tolerance a variant at the limit could not be proved by any number of
samples (docs/measured/accuracy-limits.md)."""
COUNTED_TOLERANCE = 0.08
"""The same for a proportion of the samples, which tells less: with 107 test samples, the most of a build, two
changed answers have a lower end of .942."""


@dataclass(frozen=True)
class TaskMetric:
    """Fidelity metric of one kind of task: it compares a variant's predictions with the float model's.

    Attributes:
        name: Name in reports, e.g. ``self-mAP``.
        compare: (the float model's predictions, the variant's), one each for every sample -> 0 to 1, where 1
            is equal; None where the float model predicts nothing, and the SNR is used instead.
        minimum: Least score on the samples, 0 to 1, unless the user gives a limit.
        samples: Least number of samples that prove it.
        objects: Least number of the float model's objects in them, e.g. boxes; 0 if they are not counted.
        margin: (the float model's prediction) -> margin, 0 to 1, by which it prefers its answer, for a metric
            that is a proportion of the samples. Then one sample may be chance, and candidates are compared by
            their SNR, which is finer. None for any other metric.
        resample: (the float model's predictions, the variant's, how often each sample counts: int64 [n,
            samples]) -> scores of the resamples [n]. None: the mean of the samples' own scores is resampled.
        halving_gain: Amount that the score gains on half as many samples, below MANY_SAMPLES (proof.py).
        reference_options: Decoding options for the float model's predictions.
        reference_score: Least score of the float model's objects that count; 0 for tasks without scores. They
            are decoded with ``variant_options``: a decoder that averages overlapping boxes gives others if it
            gets fewer of them.
        variant_options: Decoding options for a variant's predictions.
        count_kept: (the float model's predictions, the variant's) -> number of the float model's confident
            predictions that the variant keeps at the scores that apps use; None if that adds nothing to
            ``compare``.
        counted_options: Decoding options for the float model's predictions that ``count_kept`` takes.
        change: (the float model's predictions, the variant's) -> how much a small change of the outputs
            changes the predictions, as a power: 0 if they are equal, 1 if no object is detected again. It
            measures what is too small for ``compare``; predictions must have ``scores``. None: use the SNR.
    """

    name: str
    compare: Callable[[Sequence[Any], Sequence[Any]], float | None]
    minimum: float
    samples: int = 16
    objects: int = 0
    margin: Callable[[Any], float] | None = None
    resample: Callable[[Sequence[Any], Sequence[Any], Array], Array] | None = None
    halving_gain: float = 0.0
    reference_options: Mapping[str, Json] = field(default_factory=dict)
    reference_score: float = 0.0
    variant_options: Mapping[str, Json] = field(default_factory=dict)
    count_kept: Callable[[Sequence[Any], Sequence[Any]], Kept] | None = None
    counted_options: Mapping[str, Json] = field(default_factory=dict)
    change: Callable[[Sequence[Any], Sequence[Any]], float] | None = None

    @property
    def counted(self) -> bool:
        return self.margin is not None

    @property
    def low(self) -> float:
        """Return the least lower end of the score (one-sided 95 %), 0 to 1, that proves it."""
        return round(self.minimum - (COUNTED_TOLERANCE if self.counted else TOLERANCE), 4)


def metric_of(kind: str) -> TaskMetric | None:
    task = find_task(kind) if has_task(kind) else None
    if task is None or not task.metric:
        return None
    metric: TaskMetric = task.load(task.metric).METRIC
    return metric


def metric_named(name: str) -> TaskMetric | None:
    metrics = (metric_of(task.kind) for task in all_tasks())
    return next((metric for metric in metrics if metric is not None and metric.name == name), None)
