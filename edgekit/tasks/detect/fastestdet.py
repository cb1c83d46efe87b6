"""FastestDet: one grid, whose cells hold objectness, a box and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along
from edgekit.tasks.detect.boxes import DetectOptions, corners, input_pixels, keep_best

OBJECTNESS, CLASS = 0.6, 0.4
"""Exponents of the score: objectness^0.6 x class^0.4 (the project's ``handle_preds``)."""


@dataclass(frozen=True)
class FastestdetOptions(DetectOptions):
    """Options for decoding FastestDet, with the project's defaults."""

    score: float = 0.65
    iou: float = 0.45
    top: int = 100


def detect_fastestdet(
    outputs: Outputs, options: FastestdetOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, 5 + classes, rows, columns]: objectness 0 to 1, x, y, width, height, classes 0 to
    1.

    centre = (cell + tanh(xy)) / cells, size = sigmoid(wh) of the input, score = objectness^0.6 x class^0.4:
    the FastestDet project's ``utils/tool.py``.
    """
    predictions = outputs["predictions"]
    if predictions.ndim != 4 or len(predictions) != 1 or predictions.shape[1] < 6:
        raise EngineError(
            f"the output is {list(predictions.shape)}; fastestdet decodes [1, 5 + classes, rows, columns]"
        )
    rows, columns = predictions.shape[2:]
    planes = predictions[0].reshape(predictions.shape[1], rows * columns).astype(np.float32)
    # No class is above 1, so the objectness alone tells most of the unlikely cells.
    likely = np.flatnonzero(np.maximum(planes[0], 0) ** OBJECTNESS > options.score)
    picked = planes[:, likely]
    classes = picked[5:].argmax(axis=0)
    best = np.maximum(picked[5 + classes, np.arange(len(likely))], 0)
    scores = np.maximum(picked[0], 0) ** OBJECTNESS * best**CLASS
    confident = np.flatnonzero(scores > options.score)
    picked, likely = picked[:, confident], likely[confident]
    cells = np.stack([likely % columns, likely // columns], axis=1).astype(np.float32)
    grid = np.array([columns, rows], np.float32)
    centres = (cells + np.tanh(picked[1:3].T)) / grid
    sizes = 1 / (1 + np.exp(-np.maximum(picked[3:5].T, -88)))  # of less, float32's exp overflows
    boxes = input_pixels(corners(np.concatenate([centres, sizes], axis=1)), placed)
    return keep_best(boxes, scores[confident], classes[confident], options, placed, labels)


DECODERS: Mapping[str, Decoder] = {
    "fastestdet": Decoder(
        FastestdetOptions, detect_fastestdet, ("predictions",), classes=classes_along(1, "predictions", 5)
    )
}
