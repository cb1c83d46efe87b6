"""Masks: mAP with the float model's as ground truth, as for boxes."""

from __future__ import annotations

import numpy as np

from edgekit.processing.predictions.segment_instances import Instances
from edgekit.tasks.detect.metric import self_map
from edgekit.tensor_spec import Array


def mask_overlaps(detections: Instances, indices: Array, truth: Instances, truth_indices: Array) -> Array:
    """Compute the intersection over union of masks: float64 [n, m]."""
    overlaps = np.zeros((len(indices), len(truth_indices)))
    for row, index in enumerate(indices):
        (left, top), crop = detections.corners[index], detections.crops[index]
        for column, other in enumerate(truth_indices):
            (x, y), theirs = truth.corners[other], truth.crops[other]
            x1, y1 = max(left, x), max(top, y)
            x2 = min(left + crop.shape[1], x + theirs.shape[1])
            y2 = min(top + crop.shape[0], y + theirs.shape[0])
            if x1 < x2 and y1 < y2:
                ours = crop[y1 - top : y2 - top, x1 - left : x2 - left]
                shared = np.count_nonzero(ours & theirs[y1 - y : y2 - y, x1 - x : x2 - x])
                union = np.count_nonzero(crop) + np.count_nonzero(theirs) - shared
                overlaps[row, column] = shared / union
    return overlaps


METRIC = self_map("mask self-mAP", mask_overlaps)
