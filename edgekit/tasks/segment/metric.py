"""Class maps: their mean IoU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.segment import ClassMap

LEAST_SHARE = 0.001
"""Classes of fewer of all pixels do not count: a few pixels at an edge would decide."""


def mean_iou(reference: Sequence[ClassMap], predictions: Sequence[ClassMap]) -> float:
    """Compute the mean over classes of the intersection over union with the float model's map, over all
    samples together."""
    count = 1 + max(int(class_map.classes.max()) for class_map in (*reference, *predictions))
    both, theirs, ours = np.zeros((3, count), np.int64)
    for a, b in zip(reference, predictions, strict=True):
        theirs += np.bincount(a.classes.reshape(-1), minlength=count)
        ours += np.bincount(b.classes.reshape(-1), minlength=count)
        both += np.bincount(a.classes[a.classes == b.classes], minlength=count)
    counted = theirs >= LEAST_SHARE * theirs.sum()
    return float(np.mean(both[counted] / (theirs + ours - both)[counted]))


METRIC = TaskMetric("mask mIoU", mean_iou, minimum=0.95)
