"""YOLOv5 (also YOLOv7): boxes, objectness and classes, decoded in the graph, before NMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along
from edgekit.tasks.detect.boxes import corners, input_pixels, keep_best
from edgekit.tasks.detect.yolov8 import LikelyRows, YoloOptions
from edgekit.tensor_spec import Array


def yolov5_candidates(
    predictions: Array, options: YoloOptions, placed: ImagePlacement, extra: int = 0
) -> LikelyRows:
    """Return the likely boxes of ``predictions`` [1, n, 5 + classes + extra].

    Raises:
        EngineError: the output is of another form.
    """
    if predictions.ndim != 3 or len(predictions) != 1 or predictions.shape[2] < 6 + extra:
        columns = f"5 + classes + {extra}" if extra else "5 + classes"
        raise EngineError(f"the output is {list(predictions.shape)}; yolov5 decodes [1, boxes, {columns}]")
    rows = predictions[0]
    end = rows.shape[1] - extra
    # No class scores above its objectness, so most rows need no look at their classes.
    rows = rows[np.flatnonzero(rows[:, 4] > np.float32(options.score))].astype(np.float32)
    scores = rows[:, 5:end] * rows[:, 4:5]
    classes = scores.argmax(axis=1)
    best = scores[np.arange(len(rows)), classes]
    confident = np.flatnonzero(best > np.float32(options.score))
    rows = rows[confident]
    boxes = input_pixels(rows[:, :4], placed) if options.normalized else rows[:, :4]
    return LikelyRows(boxes, best[confident], classes[confident], rows[:, end:])


def detect_yolov5(
    outputs: Outputs, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, n, 5 + classes]: centre x, centre y, width, height in the input's pixels,
    objectness, classes, sigmoid done; score = objectness x class: the yolov5 project's export.
    """
    likely = yolov5_candidates(outputs["predictions"], options, placed)
    return keep_best(corners(likely.boxes), likely.scores, likely.classes, options, placed, labels)


DECODERS: Mapping[str, Decoder] = {
    "yolov5": Decoder(
        YoloOptions, detect_yolov5, ("predictions",), classes=classes_along(-1, "predictions", 5)
    )
}
