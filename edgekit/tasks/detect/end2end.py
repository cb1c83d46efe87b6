"""Detectors that need no NMS, or hold it: YOLOv10, YOLO26, exports with NMS, SSD's post-processing op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, rows_of, within
from edgekit.tasks.detect.boxes import corners, input_pixels
from edgekit.tensor_spec import Array

ORDERS: Mapping[str, tuple[int, ...]] = {
    "x1y1x2y2": (0, 1, 2, 3),
    "y1x1y2x2": (1, 0, 3, 2),
    "xywh": (0, 1, 2, 3),
}
"""What the four numbers of a box may be -> x before y; ``xywh`` is centre, width and height."""


@dataclass(frozen=True)
class End2EndOptions:
    """Options for decoding models without NMS.

    Attributes:
        score: Minimum score, 0 to 1.
        top: Maximum number of objects.
        normalized: Whether positions are 0 to 1 of the input instead of its pixels.
    """

    score: float = 0.25
    top: int = 300
    normalized: bool = False

    def __post_init__(self) -> None:
        at_least(1, top=self.top)
        within(0, 1, score=self.score)


@dataclass(frozen=True)
class DetectEnd2EndOptions(End2EndOptions):
    """Options for decoding boxes of models without NMS.

    Attributes:
        boxes: Order of a box's four numbers: ``x1y1x2y2``, ``y1x1y2x2`` or ``xywh``.
    """

    boxes: str = "x1y1x2y2"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.boxes not in ORDERS:
            raise ValueError(f"boxes is {self.boxes!r}; it must be one of {', '.join(ORDERS)}")


@dataclass(frozen=True)
class PostprocessedOptions(DetectEnd2EndOptions):
    """Options for decoding models that contain NMS.

    Attributes:
        first_class: Number that the model gives the first label, e.g. 1 if 0 was the background.
    """

    first_class: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, first_class=self.first_class)


def end2end_rows(predictions: Array, options: End2EndOptions, columns: int = 6) -> Array:
    """Return the rows of ``predictions`` [1, n, columns] that score above the threshold, best first: float32
    [k, columns].

    Raises:
        EngineError: the output is of another form.
    """
    if predictions.ndim != 3 or len(predictions) != 1 or predictions.shape[2] != columns:
        raise EngineError(
            f"the output is {list(predictions.shape)}; end2end decodes [1, boxes, {columns}] here"
        )
    rows = predictions[0]
    return np.asarray(rows[rank(rows[:, 4], options.score, options.top)], np.float32)


def rank(scores: Array, threshold: float, top: int) -> Array:
    """Return indices of at most ``top`` scores above ``threshold``, best first; equal ones in their order."""
    confident = np.flatnonzero(scores > np.float32(threshold))
    order: Array = confident[np.argsort(-scores[confident], kind="stable")[:top]]
    return order


def detect_end2end(
    outputs: Outputs, options: DetectEnd2EndOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, n, 6]: a box, its score, its class: Ultralytics' export of YOLOv10 and YOLO26, of
    others with ``nms=True``, where empty rows score 0, and, since 8.4, of RT-DETR (xywh, normalized).
    """
    rows = end2end_rows(outputs["predictions"], options)
    boxes = _corners_in_pixels(rows[:, :4], options, placed)
    return Detections(placed.to_frame(boxes), rows[:, 4], rows[:, 5].astype(np.int64), labels)


def _corners_in_pixels(boxes: Array, options: DetectEnd2EndOptions, placed: ImagePlacement) -> Array:
    """Convert boxes [k, 4] in the options' format to x1, y1, x2, y2 in the input's pixels."""
    boxes = boxes[:, ORDERS[options.boxes]]
    if options.boxes == "xywh":
        boxes = corners(boxes)
    return input_pixels(boxes, placed) if options.normalized else boxes


def detect_postprocessed(
    outputs: Outputs, options: PostprocessedOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``boxes`` [1, n, 4], ``scores`` [1, n] and ``classes`` [1, n], of which ``count`` [1] says how many
    are valid: TFLite_Detection_PostProcess (y1x1y2x2, normalized), torchvision's detectors and RT-DETR's
    export (x1y1x2y2 in pixels; its ``orig_target_sizes`` is the input's size), NonMaxSuppression in a graph.
    """
    boxes, scores = rows_of(outputs, "boxes", 4), outputs["scores"].reshape(-1)
    classes = outputs["classes"].reshape(-1)
    if not len(boxes) == len(scores) == len(classes):
        raise EngineError(
            f"`boxes` has {len(boxes)} rows, `scores` {len(scores)} and `classes` {len(classes)}; they must "
            "be equal"
        )
    if "count" in outputs and outputs["count"].size:
        valid = max(0, int(outputs["count"].reshape(-1)[0]))
        boxes, scores, classes = boxes[:valid], scores[:valid], classes[:valid]
    best = rank(scores, options.score, options.top)
    boxes = _corners_in_pixels(boxes[best].astype(np.float32), options, placed)
    numbers = classes[best].astype(np.int64) + options.first_class
    return Detections(placed.to_frame(boxes), scores[best].astype(np.float32), numbers, labels)


DECODERS: Mapping[str, Decoder] = {
    "end2end": Decoder(DetectEnd2EndOptions, detect_end2end, ("predictions",)),
    "postprocessed": Decoder(
        PostprocessedOptions, detect_postprocessed, ("boxes", "scores", "classes"), ("count",)
    ),
}
