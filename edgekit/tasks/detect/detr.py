"""Detection transformers: a fixed number of queries, each with a box and classes; no NMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along, rows_of
from edgekit.tasks.detect.boxes import corners, input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, rank
from edgekit.tensor_spec import Array

ACTIVATIONS = ("softmax", "sigmoid")


@dataclass(frozen=True)
class DetrOptions:
    """Options for decoding DETR.

    Attributes:
        activation: Activation of the logits. ``softmax``: the last class means no object (DETR, Conditional
            DETR). ``sigmoid``: a query may have several classes (RT-DETR, D-FINE, Deformable DETR,
            RF-DETR).
        score: Minimum score, 0 to 1.
        top: Maximum number of boxes.
    """

    activation: str = "softmax"
    score: float = 0.5
    top: int = 100

    def __post_init__(self) -> None:
        End2EndOptions(self.score, self.top)  # the same bounds
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}")


@dataclass(frozen=True)
class RtdetrOptions(End2EndOptions):
    """Options for decoding Ultralytics' RT-DETR."""

    normalized: bool = True


def detect_detr(
    outputs: Outputs, options: DetrOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``logits`` [1, queries, classes]; ``boxes`` [1, queries, 4]: centre x, centre y, width, height, 0 to 1.

    softmax: the best class except the last, which means "no object" (Carion et al., arXiv 2005.12872);
    sigmoid: the best pairs of query and class (Zhu et al., Deformable DETR, arXiv 2010.04159; Zhao et al.,
    RT-DETR, arXiv 2304.08069). Both as in Hugging Face's ``post_process_object_detection``.
    """
    logits = rows_of(outputs, "logits").astype(np.float32)
    boxes = rows_of(outputs, "boxes", 4)
    if len(logits) != len(boxes):
        raise EngineError(f"`logits` has {len(logits)} rows but `boxes` has {len(boxes)}")
    if options.activation == "softmax":
        if logits.shape[1] < 2:
            raise EngineError('`logits` has one column, which softmax reserves for "no object"')
        with np.errstate(over="ignore"):  # of logits as far apart as float32 reaches
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        classes = logits[:, :-1].argmax(axis=1)
        scores = powers[np.arange(len(logits)), classes] / powers.sum(axis=1)
        queries = rank(scores, options.score, options.top)
        classes, scores = classes[queries], scores[queries]
    else:
        pairs = logits.reshape(-1)
        # Only the likely pairs' sigmoid: it rises with the logit. 88: of less, float32's exp overflows.
        likely = np.flatnonzero(pairs > _logit(options.score))
        sigmoids = 1 / (1 + np.exp(-np.maximum(pairs[likely], -88)))
        best = rank(sigmoids, options.score, options.top)
        queries, classes = np.divmod(likely[best], logits.shape[1])
        scores = sigmoids[best]
    pixel_boxes = input_pixels(corners(boxes[queries].astype(np.float32)), placed)
    return Detections(placed.to_frame(pixel_boxes), scores, classes, labels)


def _logit(score: float) -> float:
    """Return a logit slightly below that of the score, to allow for rounding."""
    return float(np.log(score / (1 - score))) - 1e-3 if 0 < score < 1 else (-np.inf if score == 0 else np.inf)


def detect_rtdetr(
    outputs: Outputs, options: RtdetrOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, queries, 4 + classes]: centre x, centre y, width, height, then a score 0 to 1 for
    each class: RT-DETR as Ultralytics exports it.
    """
    predictions = outputs["predictions"]
    if predictions.ndim != 3 or len(predictions) != 1 or predictions.shape[2] < 5:
        raise EngineError(
            f"the output is {list(predictions.shape)}; rtdetr decodes [1, queries, 4 + classes]"
        )
    rows: Array = predictions[0]
    best = rank(rows[:, 4:].max(axis=1), options.score, options.top)
    rows = rows[best].astype(np.float32)
    classes = rows[:, 4:].argmax(axis=1)
    boxes = corners(rows[:, :4])
    if options.normalized:
        boxes = input_pixels(boxes, placed)
    scores = rows[np.arange(len(rows)), classes + 4]
    return Detections(placed.to_frame(boxes).astype(np.float32), scores.astype(np.float32), classes, labels)


def _classes(shape: tuple[int, ...], options: DetrOptions) -> int:
    return shape[-1] - (options.activation == "softmax")


DECODERS: Mapping[str, Decoder] = {
    "detr": Decoder(DetrOptions, detect_detr, ("logits", "boxes"), classes=("logits", _classes)),
    "rtdetr": Decoder(
        RtdetrOptions, detect_rtdetr, ("predictions",), classes=classes_along(-1, "predictions", 4)
    ),
}
