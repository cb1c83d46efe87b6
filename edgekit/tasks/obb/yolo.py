"""YOLO-obb (v8, 11, 26): oriented boxes, before NMS or end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.processing.nms import CANDIDATES
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along
from edgekit.tasks.detect.boxes import input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, end2end_rows
from edgekit.tasks.detect.yolov8 import YoloOptions, yolov8_candidates
from edgekit.tensor_spec import Array

EPSILON = 1e-7
"""Keeps roots and logarithms of boxes without area finite; Ultralytics' own."""


def obb_yolov8(
    outputs: Outputs, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> OrientedDetections:
    """``predictions`` [1, 4 + classes + 1, n]: centre x, centre y, width, height in the input's pixels, a
    score for each class, the angle in radians: Ultralytics' export without NMS.
    """
    likely = yolov8_candidates(outputs["predictions"], options, placed, 1)
    boxes = np.concatenate([likely.boxes, likely.extra], axis=1)
    best = suppress_oriented(boxes, likely.scores, options.rivals(likely.classes), options.iou, options.top)
    return _oriented(boxes[best], likely.scores[best], likely.classes[best], placed, labels)


def obb_end2end(
    outputs: Outputs, options: End2EndOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> OrientedDetections:
    """``predictions`` [1, n, 7]: centre x, centre y, width, height, score, class, angle in radians."""
    rows = end2end_rows(outputs["predictions"], options, 7)
    boxes = rows[:, [0, 1, 2, 3, 6]]
    if options.normalized:
        boxes[:, :4] = input_pixels(boxes[:, :4], placed)
    return _oriented(boxes, rows[:, 4], rows[:, 5].astype(np.int64), placed, labels)


def _oriented(
    boxes: Array, scores: Array, classes: Array, placed: ImagePlacement, labels: Sequence[str]
) -> OrientedDetections:
    """Map boxes from the input to the frame's pixels.

    A letterboxed frame is scaled alike along both axes but for the rounding of a pixel; width and height
    then scale as x and y do, and the angle stays, as in Ultralytics. In a stretched frame right angles are
    none: sides keep their lengths, and the width its direction.
    """
    scale = np.array([placed.scale_x, placed.scale_y], np.float32)
    centres = (boxes[:, :2] - np.array([placed.offset_x, placed.offset_y], np.float32)) / scale
    sides, angles = boxes[:, 2:4] / scale, boxes[:, 4:]
    if abs(placed.scale_x - placed.scale_y) * max(placed.frame_width, placed.frame_height) > 1:
        cosine, sine = np.cos(angles), np.sin(angles)
        along = np.concatenate([cosine, sine], axis=1) / scale
        down = np.concatenate([-sine, cosine], axis=1) / scale
        sides = boxes[:, 2:4] * np.stack([np.hypot(*along.T), np.hypot(*down.T)], axis=1)
        angles = np.arctan2(along[:, 1:], along[:, :1])
    frame_boxes = np.concatenate([centres, sides, angles], axis=1).astype(np.float32)
    return OrientedDetections(frame_boxes, scores.astype(np.float32), classes, labels)


DECODERS: Mapping[str, Decoder] = {
    "end2end": Decoder(End2EndOptions, obb_end2end, ("predictions",)),
    "yolov8": Decoder(YoloOptions, obb_yolov8, ("predictions",), classes=classes_along(1, "predictions", 5)),
}


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
