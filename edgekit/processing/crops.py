"""The crops of a frame that the later stages of a cascade see, and the way back into the frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.cascade import CascadeStage
from edgekit.processing.geometry.warp import crop_corners, crop_text, perspective
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.pose import Keypoints
from edgekit.tensor_spec import Array

Way = Callable[[Array], Array]

SIDE_LIMIT = 3
"""Longest side of a crop, in longest sides of the frame: a box as large as the frame with the largest margin.
A thing that reaches farther is left out: its place is the model's output, and a crop of it could take any
amount of memory."""


@dataclass(frozen=True, eq=False)
class Crop:
    """Crop of a frame for an object.

    Attributes:
        index: Index of the object in the first stage's prediction.
        pixels: uint8 [h, w, 3], contiguous.
        to_frame: Function that maps points [n, 2] (x, y) from the crop's pixels to the frame's. None if
            there is no inverse mapping, after a line of text was rotated to horizontal.
    """

    index: int
    pixels: Array
    to_frame: Way | None

    def rotated(self, quarters: int) -> Crop:
        """Return the crop turned anticlockwise by quarters."""
        if quarters % 4 == 0:
            return self
        way, (height, width) = self.to_frame, self.pixels.shape[:2]

        def back(points: Array) -> Array:
            assert way is not None
            x, y = points[:, 0], points[:, 1]
            old = {1: (width - y, x), 2: (width - x, height - y), 3: (y, height - x)}[quarters % 4]
            return way(np.stack(old, axis=1))

        pixels = np.ascontiguousarray(np.rot90(self.pixels, quarters))
        return Crop(self.index, pixels, None if way is None else back)


def cut(frame: Array, prediction: Any, stage: CascadeStage) -> list[Crop]:
    """Crop the objects that the first stage detected.

    Args:
        frame: uint8 [height, width, 3].
        prediction: Its prediction, with ``boxes`` [n, 4] or ``corners`` [n, 4, 2] in the frame's pixels.
        stage: Stage that selects the objects and states how they are cut. Those without an area and those
            beyond SIDE_LIMIT are left out.

    Raises:
        EngineError: the prediction has no such places.
    """
    chosen = _chosen(prediction, stage)
    if stage.crop == "box":
        boxes = boxes_of(prediction, stage.name)
        crops = [_box(frame, index, boxes[index], stage) for index in chosen]
    else:
        corners = _corners_of(prediction, stage.name)
        crops = [_corners(frame, index, corners[index], stage) for index in chosen]
    return [crop for crop in crops if crop is not None]


def boxes_of(prediction: Any, stage: str) -> Array:
    """Return upright boxes [n, 4] of the objects in a prediction, around their corners if it has corners
    only.

    Raises:
        EngineError: they have no places.
    """
    boxes = getattr(prediction, "boxes", None)
    if boxes is None or boxes.shape[1] != 4:  # an oriented box has five numbers
        corners = _corners_of(prediction, stage)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    return np.asarray(boxes)


def _corners_of(prediction: Any, stage: str) -> Array:
    """Return the objects' corners [n, 4, 2], or those of their boxes if the prediction has boxes only."""
    boxes = getattr(prediction, "boxes", None)
    if boxes is not None and boxes.shape[1] == 4:
        return np.asarray(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2))
    if not all(len(getattr(detection, "corners", ())) == 4 for detection in prediction) or isinstance(
        prediction, Classes
    ):
        raise EngineError(
            f"stage {stage}: the first stage predicts {type(prediction).__name__}, "
            "which has no regions to crop; use a detector"
        )
    return np.array([detection.corners for detection in prediction], np.float32).reshape(-1, 4, 2)


def _chosen(prediction: Any, stage: CascadeStage) -> list[int]:
    labels, classes = getattr(prediction, "labels", ()), getattr(prediction, "classes", None)
    chosen = []
    for index in range(len(prediction)):
        label = label_of(labels, int(classes[index]) if classes is not None else 0)
        if prediction.scores[index] >= stage.score and (not stage.classes or label in stage.classes):
            chosen.append(index)
    best = sorted(chosen, key=lambda index: -prediction.scores[index])[: stage.most]
    return sorted(best)  # in the order of the prediction, e.g. that of reading


def _box(frame: Array, index: int, box: Array, stage: CascadeStage) -> Crop | None:
    x1, y1, x2, y2 = (float(value) for value in box)
    longer = max(x2 - x1, y2 - y1)
    if stage.square:
        x1, x2 = (x1 + x2 - longer) / 2, (x1 + x2 + longer) / 2
        y1, y2 = (y1 + y2 - longer) / 2, (y1 + y2 + longer) / 2
    more = stage.margin * longer
    left, top = int(np.floor(x1 - more)), int(np.floor(y1 - more))
    right, bottom = int(np.ceil(x2 + more)), int(np.ceil(y2 + more))
    height, width = frame.shape[:2]
    if not stage.square:
        left, top, right, bottom = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    if max(right - left, bottom - top) > SIDE_LIMIT * max(height, width):
        return None
    visible = frame[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if not visible.size:
        return None
    pixels = visible
    if (bottom - top, right - left) != visible.shape[:2]:
        pixels = np.zeros((bottom - top, right - left, 3), np.uint8)
        y, x = max(-top, 0), max(-left, 0)
        pixels[y : y + visible.shape[0], x : x + visible.shape[1]] = visible
    corner = np.array([left, top], np.float32)
    return Crop(index, np.ascontiguousarray(pixels), lambda points: points + corner)


def _corners(frame: Array, index: int, corners: Array, stage: CascadeStage) -> Crop | None:
    corners = np.asarray(corners, np.float64)
    around = np.roll(corners, -1, axis=0)
    if abs(float((corners[:, 0] * around[:, 1] - corners[:, 1] * around[:, 0]).sum())) < 2:  # 1 pixel of area
        return None
    if np.linalg.norm(around - corners, axis=1).max() > SIDE_LIMIT * max(frame.shape):
        return None
    if stage.crop == "text":
        return Crop(index, crop_text(frame, corners), None)
    pixels = crop_corners(frame, corners)
    height, width = pixels.shape[:2]
    matrix = perspective(np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64), corners)

    def back(points: Array) -> Array:
        x, y, z = matrix @ np.concatenate([points, np.ones((len(points), 1))], axis=1).T
        return np.stack([x / z, y / z], axis=1).astype(np.float32)

    return Crop(index, pixels, back)


def in_frame(prediction: Any, crop: Crop) -> Any:
    """Return a prediction about a crop with detections and keypoints in the frame's pixels. Others are
    unchanged, e.g. masks, which keep the crop's pixels."""
    if crop.to_frame is None or not isinstance(prediction, Detections | Keypoints | TextRegions):
        return prediction
    mapped: dict[str, Any] = {}
    for name in ("points", "landmarks", "corners"):
        points = getattr(prediction, name, None)
        if points is not None:
            mapped[name] = crop.to_frame(points.reshape(-1, 2)).reshape(points.shape).astype(points.dtype)
    boxes = getattr(prediction, "boxes", None)
    if boxes is not None:
        corners = crop.to_frame(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2)).reshape(-1, 4, 2)
        around = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        mapped["boxes"] = around.reshape(-1, 4).astype(boxes.dtype)
    return replace(prediction, **mapped)
