"""Non-maximum suppression of oriented boxes, as Ultralytics does it: probabilistic IoU, fast NMS."""

from __future__ import annotations

import numpy as np

from edgekit.processing.nms import CANDIDATES
from edgekit.tensor_spec import Array

EPSILON = 1e-7
"""Keeps roots and logarithms of boxes without area finite; Ultralytics' own."""


def suppress_oriented(boxes: Array, scores: Array, classes: Array, iou: float, top: int) -> Array:
    """Run Fast NMS: remove each box that a better one of its class covers, even if that one is removed too.

    Source: Bolya et al., YOLACT, arXiv 1904.02689. In a chain of overlapping boxes it removes more than
    greedy NMS does.

    Args:
        boxes: float32 [n, 5]: centre x, centre y, width, height, angle in radians.
        scores: float32 [n].
        classes: int64 [n].
        iou: Maximum ``probabilistic_iou`` with a better box of the class.
        top: Maximum number of boxes to keep.

    Returns:
        int64 [kept]: indices of the kept boxes, best first. Equal scores keep their order.
    """
    order = np.argsort(-scores, kind="stable")[:CANDIDATES]
    if len(order) < 2:
        return order[:top]
    best, kinds = boxes[order], classes[order]
    overlaps = probabilistic_iou(best, best) > np.float32(iou)
    overlaps &= kinds[:, None] == kinds[None, :]
    survivors: Array = order[~np.triu(overlaps, 1).any(axis=0)][:top]
    return survivors


def probabilistic_iou(boxes: Array, others: Array) -> Array:
    """Compute the similarity of oriented boxes, 0 to 1: 1 - the Hellinger distance of their Gaussians.

    Llerena et al., Gaussian Bounding Boxes and Probabilistic Intersection-over-Union, arXiv 2106.06072.

    Args:
        boxes: float32 [n, 5]: centre x, centre y, width, height, angle in radians.
        others: float32 [m, 5].

    Returns:
        float32 [n, m].
    """
    a, b, c = (part[:, None] for part in _covariance(boxes))
    other_a, other_b, other_c = (part[None, :] for part in _covariance(others))
    x = boxes[:, None, 0] - others[None, :, 0]
    y = boxes[:, None, 1] - others[None, :, 1]
    sum_a, sum_b, sum_c = a + other_a, b + other_b, c + other_c
    determinant = sum_a * sum_b - sum_c * sum_c
    apart = (sum_a * y * y + sum_b * x * x) / (determinant + EPSILON) / 4
    apart -= sum_c * x * y / (determinant + EPSILON) / 2
    areas = np.maximum(a * b - c * c, 0) * np.maximum(other_a * other_b - other_c * other_c, 0)
    unlike = np.log(np.maximum(determinant, 0) / (4 * np.sqrt(areas) + EPSILON) + EPSILON) / 2
    bhattacharyya = np.clip(apart + unlike, EPSILON, 100)
    alike: Array = 1 - np.sqrt(1 - np.exp(-bhattacharyya) + EPSILON)
    return alike


def _covariance(boxes: Array) -> tuple[Array, Array, Array]:
    """Compute variance of x, variance of y and covariance of each box's Gaussian. A side's variance is
    its square / 12, as in a uniform distribution along it."""
    width_variance, height_variance = boxes[:, 2] ** 2 / 12, boxes[:, 3] ** 2 / 12
    cosine, sine = np.cos(boxes[:, 4]), np.sin(boxes[:, 4])
    return (
        width_variance * cosine**2 + height_variance * sine**2,
        width_variance * sine**2 + height_variance * cosine**2,
        (width_variance - height_variance) * cosine * sine,
    )
