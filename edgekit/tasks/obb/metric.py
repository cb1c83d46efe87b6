"""Oriented boxes: mAP with the float model's as ground truth, as for upright ones."""

from __future__ import annotations

import numpy as np

from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.tasks.detect.metric import self_map
from edgekit.tasks.obb.yolo import probabilistic_iou
from edgekit.tensor_spec import Array


def oriented_overlaps(
    detections: OrientedDetections, indices: Array, truth: OrientedDetections, truth_indices: Array
) -> Array:
    """Compute the probabilistic IoU of oriented boxes, like Ultralytics: float64 [n, m]."""
    boxes, others = (
        detections.boxes[indices].astype(np.float64),
        truth.boxes[truth_indices].astype(np.float64),
    )
    return probabilistic_iou(boxes, others)


METRIC = self_map("OBB self-mAP", oriented_overlaps)
