"""YOLO-obb (v8, 11, 26): oriented boxes, before NMS or end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along
from edgekit.tasks.detect.boxes import input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, end2end_rows
from edgekit.tasks.detect.yolov8 import YoloOptions, yolov8_candidates
from edgekit.tasks.obb.rotated_nms import suppress_oriented
from edgekit.tensor_spec import Array


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
