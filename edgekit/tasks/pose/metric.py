"""Keypoints: mAP with the float model's as ground truth, as for boxes."""

from __future__ import annotations

import numpy as np

from edgekit.processing.predictions.pose import VISIBLE_SCORE, Keypoints
from edgekit.tasks.detect.metric import self_map
from edgekit.tensor_spec import Array

# fmt: off
COCO_SIGMAS = np.array([
    .026, .025, .025, .035, .035, .079, .079, .072, .072, .062, .062, .107, .107, .087, .087, .089, .089,
])
# fmt: on
"""How far people place COCO's 17 keypoints from each other, of a person's size: COCO's evaluation."""
OTHER_SIGMA = 0.05
"""Of keypoints that are not COCO's: about a limb's."""


def keypoint_similarity(
    detections: Keypoints, indices: Array, truth: Keypoints, truth_indices: Array
) -> Array:
    """Compute the object keypoint similarity: float64 [n, m].

    The mean of exp(-distance^2 / (2 area (2 sigma)^2)) over the visible keypoints of the ground truth, all
    where none is: COCO's keypoint evaluation. The area is that of the box, or of the keypoints' extent.
    """
    points = truth.points[truth_indices]
    corners = [points.min(axis=1), points.max(axis=1)] if len(points) else [np.zeros((0, 2))] * 2
    if truth.boxes is not None:
        corners = [truth.boxes[truth_indices, :2], truth.boxes[truth_indices, 2:]]
    areas = np.maximum((corners[1].astype(np.float64) - corners[0]).prod(axis=1), 1.0)
    visible = np.ones(points.shape[:2], np.bool_)
    if truth.point_scores is not None:
        visible = truth.point_scores[truth_indices] >= VISIBLE_SCORE
        visible[~visible.any(axis=1)] = True
    apart = detections.points[indices].astype(np.float64)[:, None] - points[None]
    return similarity_of(apart, areas, visible)


def similarity_of(apart: Array, areas: Array, counted: Array) -> Array:
    """Compute the object keypoint similarity: float64 [n, m].

    Args:
        apart: Differences of x and y in pixels: float64 [n, m, k, 2].
        areas: Area of each object: float64 [m].
        counted: Keypoints that count: bool [m, k].
    """
    count = apart.shape[2]
    sigmas = COCO_SIGMAS if count == len(COCO_SIGMAS) else np.full(count, OTHER_SIGMA)
    alike = np.exp(-(apart**2).sum(axis=3) / (2 * areas[:, None] * (2 * sigmas) ** 2)) * counted
    similarity: Array = alike.sum(axis=2) / np.maximum(counted.sum(axis=1), 1)
    return similarity


METRIC = self_map("OKS self-mAP", keypoint_similarity)
