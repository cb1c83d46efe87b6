"""YOLO-pose (v8, 11, 26): boxes with keypoints, before NMS or end to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.nms import suppress
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.tasks.detect.boxes import corners, input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, end2end_rows
from edgekit.tasks.detect.yolov8 import YoloOptions, yolov8_candidates
from edgekit.tasks.pose.skeleton import check_skeleton, names_and_lines
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class PoseOptions(YoloOptions):
    """Options for decoding YOLO-pose.

    Attributes:
        keypoints: Names of the keypoints.
        skeleton: Pairs of keypoints, numbered from 0, that a line connects.
        dimensions: Numbers per keypoint: 2 for x and y, 3 with its score.
    """

    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    dimensions: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)


@dataclass(frozen=True)
class PoseEnd2EndOptions(End2EndOptions):
    """Options for decoding pose models without NMS.

    Attributes:
        keypoints: Names of the keypoints.
        skeleton: Pairs of keypoints, numbered from 0, that a line connects.
        dimensions: Numbers per keypoint: 2 for x and y, 3 with its score.
    """

    keypoints: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    dimensions: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)


def _check(options: PoseOptions | PoseEnd2EndOptions) -> None:
    check_skeleton(options)
    if options.dimensions not in (2, 3):
        raise ValueError(f"dimensions is {options.dimensions}; it must be 2 (x, y) or 3 (x, y, score)")


def pose_yolov8(
    outputs: Outputs, options: PoseOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``predictions`` [1, 4 + classes + keypoints x dimensions, n]: centre x, centre y, width, height, a
    score for each class, then the keypoints' x, y, score; one class unless the card has labels.
    """
    predictions = outputs["predictions"]
    channels = predictions.shape[1] if predictions.ndim == 3 else 0
    extra = channels - 4 - max(1, len(labels))
    count = _count(extra, options.dimensions, predictions)
    likely = yolov8_candidates(predictions, options, placed, extra)
    boxes = corners(likely.boxes)
    best = suppress(boxes, likely.scores, options.rivals(likely.classes), options.iou, options.top)
    points = likely.extra[best].reshape(len(best), count, options.dimensions)
    return _keypoints(boxes[best], likely.scores[best], likely.classes[best], points, options, placed, labels)


def pose_end2end(
    outputs: Outputs, options: PoseEnd2EndOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Keypoints:
    """``predictions`` [1, n, 6 + keypoints x dimensions]: x1, y1, x2, y2, score, class, keypoints."""
    predictions = outputs["predictions"]
    columns = predictions.shape[-1] if predictions.ndim == 3 else 0
    count = _count(columns - 6, options.dimensions, predictions)
    rows = end2end_rows(predictions, options, columns)
    points = rows[:, 6:].reshape(len(rows), count, options.dimensions)
    classes = rows[:, 5].astype(np.int64)
    boxes = input_pixels(rows[:, :4], placed) if options.normalized else rows[:, :4]
    return _keypoints(boxes, rows[:, 4], classes, points, options, placed, labels)


def _count(extra: int, dimensions: int, predictions: Array) -> int:
    if extra < dimensions or extra % dimensions:
        raise EngineError(
            f"the output is {list(predictions.shape)}, and no number of keypoints with {dimensions} "
            "dimensions fits; correct labels or dimensions in the card"
        )
    return extra // dimensions


def _keypoints(
    boxes: Array,
    scores: Array,
    classes: Array,
    points: Array,
    options: PoseOptions | PoseEnd2EndOptions,
    placed: ImagePlacement,
    labels: Sequence[str],
) -> Keypoints:
    """Map points [n, k, 2 or 3] and boxes from the input to the frame's pixels."""
    names, lines = names_and_lines(options, points.shape[1])
    places = points[:, :, :2]
    if options.normalized:
        places = input_pixels(places, placed)
    return Keypoints(
        placed.to_frame(places).astype(np.float32),
        scores.astype(np.float32),
        classes,
        labels,
        placed.to_frame(boxes).astype(np.float32),
        points[:, :, 2].astype(np.float32) if options.dimensions == 3 else None,
        None,
        names,
        lines,
    )


DECODERS: Mapping[str, Decoder] = {
    "yolov8": Decoder(PoseOptions, pose_yolov8, ("predictions",)),
    "end2end": Decoder(PoseEnd2EndOptions, pose_end2end, ("predictions",)),
}
