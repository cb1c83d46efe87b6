"""YOLOv8 and its heirs (YOLOv9, 11, 12; YOLOv5u): boxes and classes, decoded in the graph, before NMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along
from edgekit.tasks.detect.boxes import (
    DetectOptions,
    best_classes,
    corners,
    input_pixels,
    keep_best,
)
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class YoloOptions(DetectOptions):
    """Options for decoding YOLO, with Ultralytics' defaults.

    Attributes:
        normalized: Whether positions are 0 to 1 of the input instead of its pixels, as in Ultralytics'
            TFLite exports.
    """

    score: float = 0.25
    iou: float = 0.7
    top: int = 300
    normalized: bool = False


class LikelyRows(NamedTuple):
    """Boxes of the likely rows of a YOLO head, before NMS.

    Attributes:
        boxes: float32 [k, 4]: centre x, centre y, width, height in the input's pixels.
        scores: float32 [k].
        classes: int64 [k].
        extra: float32 [k, rest]: what follows the classes, e.g. keypoints.
    """

    boxes: Array
    scores: Array
    classes: Array
    extra: Array


def yolov8_candidates(
    predictions: Array, options: YoloOptions, placed: ImagePlacement, extra: int = 0
) -> LikelyRows:
    """Return the likely boxes of ``predictions`` [1, 4 + classes + extra, n].

    Raises:
        EngineError: the output is of another form.
    """
    if predictions.ndim != 3 or len(predictions) != 1 or predictions.shape[1] < 5 + extra:
        rows = f"4 + classes + {extra}" if extra else "4 + classes"
        raise EngineError(f"the output is {list(predictions.shape)}; yolov8 decodes [1, {rows}, boxes]")
    planes = predictions[0]
    end = len(planes) - extra
    likely, classes, scores = best_classes(planes[4:end], options.score)
    boxes = planes[:4, likely].T.astype(np.float32)  # float16 would overflow in areas
    if options.normalized:
        boxes = input_pixels(boxes, placed)
    extras = planes[end:, likely].T.astype(np.float32)
    return LikelyRows(boxes, scores.astype(np.float32), classes, extras)


def detect_yolov8(
    outputs: Outputs, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, 4 + classes, n]: centre x, centre y, width, height in the input's pixels, then a
    score 0 to 1 for each class: Ultralytics' export without NMS.
    """
    likely = yolov8_candidates(outputs["predictions"], options, placed)
    return keep_best(corners(likely.boxes), likely.scores, likely.classes, options, placed, labels)


DECODERS: Mapping[str, Decoder] = {
    "yolov8": Decoder(
        YoloOptions, detect_yolov8, ("predictions",), classes=classes_along(1, "predictions", 4)
    )
}
