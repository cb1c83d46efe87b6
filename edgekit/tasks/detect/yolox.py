"""YOLOX: anchor-free grids whose rows hold objectness and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, classes_along, rows_of
from edgekit.tasks.detect.boxes import DetectOptions, check_strides, grid_cells, keep_best


@dataclass(frozen=True)
class YoloxOptions(DetectOptions):
    """Options for decoding YOLOX.

    Attributes:
        strides: Pixels of the input per cell of each grid, in the order of the output's rows.
    """

    strides: tuple[int, ...] = (8, 16, 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strides(self.strides)


def detect_yolox(
    outputs: Outputs, options: YoloxOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, cells, 5 + classes]: x, y, width, height, objectness, classes, sigmoid done.

    centre = (xy + cell) stride, size = exp(wh) stride, score = objectness x class: Ge et al., YOLOX,
    arXiv 2107.08430, and its export's layout: grids one after another, each row by row.
    """
    rows = rows_of(outputs, "predictions")
    if rows.shape[1] < 6:
        raise EngineError(f"the output has {rows.shape[1]} columns; yolox decodes [1, cells, 5 + classes]")
    cells, strides = grid_cells(tuple(options.strides), placed.input_width, placed.input_height)
    if len(rows) != len(cells):
        raise EngineError(
            f"the output has {len(rows)} rows, but strides {list(options.strides)} on an input of "
            f"{placed.input_width}x{placed.input_height} make {len(cells)}; set strides in the card"
        )
    # No class scores above its objectness, so most rows need no look at their classes.
    likely = np.flatnonzero(rows[:, 4] > options.score)
    rows, cells, strides = rows[likely].astype(np.float32), cells[likely], strides[likely]
    scores = rows[:, 5:] * rows[:, 4:5]
    classes = scores.argmax(axis=1) if len(rows) else np.zeros(0, np.int64)
    best = scores[np.arange(len(rows)), classes]
    confident = best > options.score
    rows, cells, strides = rows[confident], cells[confident], strides[confident]
    centre = (rows[:, 0:2] + cells) * strides
    # 20: exp(20) strides are far outside of any image, and the exponential does not overflow.
    half = np.exp(np.minimum(rows[:, 2:4], 20)) * strides / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    return keep_best(boxes, best[confident], classes[confident], options, placed, labels)


DECODERS: Mapping[str, Decoder] = {
    "yolox": Decoder(
        YoloxOptions, detect_yolox, ("predictions",), classes=classes_along(-1, "predictions", 5)
    )
}
