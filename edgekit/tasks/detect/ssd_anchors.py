"""SSD without decoding in the graph: boxes relative to anchors, and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, rows_of
from edgekit.tasks.detect.anchors import AnchorOptions, anchors_for, check_count
from edgekit.tasks.detect.boxes import corners, input_pixels, keep_best

ACTIVATIONS = ("sigmoid", "softmax", "none")


@dataclass(frozen=True)
class SsdAnchorsOptions(AnchorOptions):
    """Options for decoding SSD relative to anchors.

    Attributes:
        activation: Activation of the scores: ``sigmoid``, ``softmax`` or ``none``.
        background: Whether the first column of the scores is the background.
        first_class: Class number of the first column after the background.
    """

    activation: str = "sigmoid"
    background: bool = True
    first_class: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, first_class=self.first_class)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}")


def detect_ssd_anchors(
    outputs: Outputs, options: SsdAnchorsOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``boxes`` [1, n, 4]: y, x, height, width relative to the anchor; ``scores`` [1, n, classes].

    centre = anchor + box / scale x anchor's size, size = exp(box / scale) x anchor's size: Liu et al., SSD,
    arXiv 1512.02325, with the scales of TensorFlow's FasterRcnnBoxCoder. A box has its best class.
    """
    boxes = rows_of(outputs, "boxes", 4)
    scores = rows_of(outputs, "scores").astype(np.float32)
    if len(boxes) != len(scores):
        raise EngineError(f"`boxes` has {len(boxes)} rows but `scores` has {len(scores)}")
    anchors = anchors_for(options, placed.input_width, placed.input_height)
    settings = "strides, aspect_ratios or interpolated_ratio"
    check_count(len(boxes), len(anchors), placed.input_width, placed.input_height, settings)
    if options.activation == "softmax":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    scores = scores[:, int(options.background) :]
    if not scores.shape[1]:
        raise EngineError("`scores` has one column, which the card assigns to the background")
    best = scores.max(axis=1)
    if options.activation == "sigmoid":
        best = 1 / (1 + np.exp(-np.maximum(best, -88)))  # of less, float32's exp overflows
    likely = np.flatnonzero(best > np.float32(options.score))
    classes = scores[likely].argmax(axis=1) + options.first_class
    relative = (boxes[likely] / np.array(options.scales, np.float32))[:, [1, 0, 3, 2]]
    picked = anchors[likely]
    centres = picked[:, :2] + relative[:, :2] * picked[:, 2:]
    sizes = np.exp(np.minimum(relative[:, 2:], 20)) * picked[:, 2:]
    pixel_boxes = input_pixels(corners(np.concatenate([centres, sizes], axis=1)), placed)
    return keep_best(pixel_boxes, best[likely], classes, options, placed, labels)


def _classes(shape: tuple[int, ...], options: SsdAnchorsOptions) -> int:
    return shape[-1] - options.background + options.first_class


DECODERS: Mapping[str, Decoder] = {
    "ssd-anchors": Decoder(
        SsdAnchorsOptions, detect_ssd_anchors, ("boxes", "scores"), classes=("scores", _classes)
    )
}
