"""Masks by their mean IoU, mattes by the mean difference of alpha.

Depth and pictures have no line here: their outputs are the answer, and the SNR in dB is their measure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metrics.task_metric import TaskMetric
from edgekit.processing.tasks.matting.prediction import Matte
from edgekit.processing.tasks.segment.prediction import ClassMap

LEAST_SHARE = 0.001
"""Classes of fewer of all pixels do not count: a few pixels at an edge would decide."""


def mean_iou(reference: Sequence[ClassMap], found: Sequence[ClassMap]) -> float:
    """Mean over classes of intersection over union with the float model's map, all samples together."""
    count = 1 + max(int(each.classes.max()) for each in (*reference, *found))
    both, theirs, ours = np.zeros((3, count), np.int64)
    for a, b in zip(reference, found, strict=True):
        theirs += np.bincount(a.classes.reshape(-1), minlength=count)
        ours += np.bincount(b.classes.reshape(-1), minlength=count)
        both += np.bincount(a.classes[a.classes == b.classes], minlength=count)
    counted = theirs >= LEAST_SHARE * theirs.sum()
    return float(np.mean(both[counted] / (theirs + ours - both)[counted]))


def alpha_agreement(reference: Sequence[Matte], found: Sequence[Matte]) -> float:
    """1 - mean absolute difference (MAD) of alpha."""
    pairs = zip(reference, found, strict=True)
    return 1 - float(np.mean([np.abs(a.alpha - b.alpha).mean() for a, b in pairs]))


MEAN_IOU = TaskMetric("mask mIoU", mean_iou, drop=0.1)
ALPHA_AGREEMENT = TaskMetric("1 - MAD of alpha", alpha_agreement, drop=0.02)
