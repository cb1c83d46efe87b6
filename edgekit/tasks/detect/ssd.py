"""SSD: boxes and scores, decoded in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, rows_of
from edgekit.tasks.detect.boxes import DetectOptions, keep_best


@dataclass(frozen=True)
class SsdOptions(DetectOptions):
    """Options for decoding SSD.

    Attributes:
        first_class: Class number of the first column, e.g. 1 if the background's column was removed.
    """

    first_class: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, first_class=self.first_class)


def detect_ssd(
    outputs: Outputs, options: SsdOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``boxes`` [1, n, (1,) 4]: y1, x1, y2, x2, 0 to 1; ``scores`` [1, n, classes], 0 to 1."""
    scores, boxes = rows_of(outputs, "scores"), rows_of(outputs, "boxes", 4)
    if len(boxes) != len(scores):
        raise EngineError(f"`boxes` has {len(boxes)} rows but `scores` has {len(scores)}")
    best = scores.max(axis=1)
    confident = np.flatnonzero(best > options.score)
    classes = scores[confident].argmax(axis=1) + options.first_class
    size = np.array([placed.input_width, placed.input_height] * 2, np.float32)
    return keep_best(
        boxes[confident][:, [1, 0, 3, 2]] * size, best[confident], classes, options, placed, labels
    )


def _classes(shape: tuple[int, ...], options: SsdOptions) -> int:
    return shape[-1] + options.first_class


DECODERS: Mapping[str, Decoder] = {
    "ssd": Decoder(SsdOptions, detect_ssd, ("boxes", "scores"), classes=("scores", _classes))
}
