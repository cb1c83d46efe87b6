"""Masks, keypoints and oriented boxes: mAP with the float model's as ground truth, as for boxes."""

from __future__ import annotations

from functools import partial

import numpy as np

from edgekit.compiler.evaluate.average_precision import Similarity, mean_average_precision, mean_change
from edgekit.compiler.evaluate.task_metrics.detections import SELF_MAP
from edgekit.compiler.evaluate.task_metrics.task_metric import TaskMetric
from edgekit.processing.tasks.obb.prediction import OrientedDetections
from edgekit.processing.tasks.obb.rotated_nms import probabilistic_iou
from edgekit.processing.tasks.pose.prediction import VISIBLE_SCORE, Keypoints
from edgekit.processing.tasks.segment_instances.prediction import Instances
from edgekit.tensor_spec import Array

# fmt: off
COCO_SIGMAS = np.array([
    .026, .025, .025, .035, .035, .079, .079, .072, .072, .062, .062, .107, .107, .087, .087, .089, .089,
])
# fmt: on
"""How far people place COCO's 17 keypoints from each other, of a person's size: COCO's evaluation."""
OTHER_SIGMA = 0.05
"""Of keypoints that are not COCO's: about a limb's."""


def mask_overlaps(found: Instances, indices: Array, truth: Instances, there: Array) -> Array:
    """Intersection over union of masks: float64 [n, m]."""
    overlaps = np.zeros((len(indices), len(there)))
    for row, index in enumerate(indices):
        (left, top), crop = found.corners[index], found.crops[index]
        for column, other in enumerate(there):
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


def keypoint_similarity(found: Keypoints, indices: Array, truth: Keypoints, there: Array) -> Array:
    """Object keypoint similarity: float64 [n, m].

    The mean of exp(-distance^2 / (2 area (2 sigma)^2)) over the visible keypoints of the ground truth, all
    where none is: COCO's keypoint evaluation. The area is that of the box, or of the keypoints' extent.
    """
    ours, points = found.points[indices].astype(np.float64), truth.points[there].astype(np.float64)
    sigmas = COCO_SIGMAS if points.shape[1] == len(COCO_SIGMAS) else np.full(points.shape[1], OTHER_SIGMA)
    corners = [points.min(axis=1), points.max(axis=1)] if len(points) else [np.zeros((0, 2))] * 2
    if truth.boxes is not None:
        corners = [truth.boxes[there, :2].astype(np.float64), truth.boxes[there, 2:].astype(np.float64)]
    areas = np.maximum((corners[1] - corners[0]).prod(axis=1), 1.0)
    visible = np.ones(points.shape[:2], np.bool_)
    if truth.point_scores is not None:
        visible = truth.point_scores[there] >= VISIBLE_SCORE
        visible[~visible.any(axis=1)] = True
    apart = ((ours[:, None] - points[None]) ** 2).sum(axis=3)
    alike = np.exp(-apart / (2 * areas[:, None] * (2 * sigmas) ** 2)) * visible
    similarity: Array = alike.sum(axis=2) / np.maximum(visible.sum(axis=1), 1)
    return similarity


def oriented_overlaps(
    found: OrientedDetections, indices: Array, truth: OrientedDetections, there: Array
) -> Array:
    """Probabilistic IoU of oriented boxes, as Ultralytics measures them: float64 [n, m]."""
    boxes, others = found.boxes[indices].astype(np.float64), truth.boxes[there].astype(np.float64)
    return probabilistic_iou(boxes, others)


def _self_map(name: str, similarity: Similarity) -> TaskMetric:
    """A self-mAP by another similarity than that of boxes; thresholds and the accepted drop are theirs."""
    return TaskMetric(
        name,
        partial(mean_average_precision, similarity=similarity),
        drop=SELF_MAP.drop,
        reference_options=SELF_MAP.reference_options,
        variant_options=SELF_MAP.variant_options,
        change=partial(mean_change, similarity=similarity),
    )


SELF_MAP_MASKS = _self_map("mask self-mAP", mask_overlaps)
SELF_MAP_KEYPOINTS = _self_map("OKS self-mAP", keypoint_similarity)
SELF_MAP_ORIENTED = _self_map("OBB self-mAP", oriented_overlaps)
