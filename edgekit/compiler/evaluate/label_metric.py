"""Metrics of tasks on labelled samples: mAP, top-1, mIoU, WER.

A task's folder holds its metric in ``accuracy.py``. The metric reads the labels, takes what it needs of each
prediction, and scores them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.folder import LABEL_FOLDERS
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.task_table import all_tasks, find_task
from edgekit.tensor_spec import Array, Json

Item = Path | str


@dataclass(frozen=True, eq=False)
class LabelledSample:
    """Sample with its label.

    Attributes:
        name: Name in messages: the file relative to the folder.
        item: File of the sample, or a string; for pairs two of them.
        label: Label, of the type that the task's metric takes.
    """

    name: str
    item: Item | tuple[Item, ...]
    label: Any


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    """Samples with their labels.

    Attributes:
        samples: The samples, in the order of their files.
        form: Format of the labels, e.g. ``YOLO text files``.
        notes: What was left out or assumed, for the user.
    """

    samples: Sequence[LabelledSample]
    form: str
    notes: Sequence[str] = ()


class Group(NamedTuple):
    """Score of a part of the labelled objects or samples, and their number."""

    value: float
    labelled: int


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a model's predictions on labelled samples.

    Attributes:
        value: (how often each sample counts, int64 [samples]) -> the metric; None if no sample that counts is
            labelled. All ones give the metric itself, the counts of a resample a bootstrap's value.
        errors: Size of the error in each sample: float64 [samples]; 0 means right.
        faults: Description of each sample's error.
        labelled: Number of labelled objects, words or samples.
        right: Number of samples that are right, if the metric is their share. None means another metric.
        groups: Kind of part, e.g. ``class`` or ``size`` -> name of the part -> its score.
    """

    value: Callable[[Array], float | None]
    errors: Array
    faults: Sequence[str]
    labelled: int
    right: int | None = None
    groups: Mapping[str, Mapping[str, Group]] = field(default_factory=dict)


def mean_error(
    errors: Sequence[float], faults: Sequence[str], groups: Mapping[str, Sequence[float]]
) -> Scores:
    """Score by the mean of each sample's error, such as a mean absolute error.

    Args:
        errors: Error of each sample.
        groups: Name of another figure -> its value for each sample.
    """
    values = np.array(errors, np.float64)
    others = {name: Group(float(np.mean(figures)), len(values)) for name, figures in groups.items()}
    return Scores(
        lambda weights: float(weights @ values / weights.sum()),
        values,
        faults,
        len(values),
        groups={"figure": others} if others else {},
    )


@dataclass(frozen=True)
class LabelMetric:
    """Metric of a task on labelled samples.

    Attributes:
        name: Name in reports, e.g. ``mAP``.
        units: What ``Scores.labelled`` counts, e.g. ``objects``.
        read: (folder of samples and labels, card) -> the labelled samples; raises SampleError if they
            can't be read.
        measure: (label, prediction, card) -> what ``score`` needs of a prediction.
        score: (measures of all samples, card) -> their scores.
        options: Decoding options of the predictions.
        is_error: Whether the metric is an error, of which less is better.
        label_folders: Names of folders of labels next to that of the samples.
    """

    name: str
    units: str
    read: Callable[[Path, Card], LabelledSamples]
    measure: Callable[[Any, Any, Card], Any]
    score: Callable[[Sequence[Any], Card], Scores]
    options: Mapping[str, Json] = field(default_factory=dict)
    is_error: bool = False
    label_folders: Sequence[str] = LABEL_FOLDERS


def label_metric(card: Card) -> LabelMetric:
    """Return the metric of a card's task.

    Raises:
        UsageError: the card has no task, or the task has no metric on labels.
    """
    if card.task is None:
        raise UsageError(
            f"{card.title}: the card has no [task], so predictions can't be compared with labels"
        )
    task = find_task(card.task.kind)
    if not task.accuracy:
        kinds = ", ".join(one.kind for one in all_tasks() if one.accuracy)
        raise UsageError(f"{card.title}: {task.kind} has no metric on labels yet; these tasks have: {kinds}")
    metric: LabelMetric = task.load(task.accuracy).ACCURACY
    return metric
