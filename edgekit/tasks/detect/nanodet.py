"""NanoDet and NanoDet-Plus: classes, and each side's distance as a distribution (generalized focal loss)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, within
from edgekit.tasks.detect.boxes import DetectOptions, check_strides, grid_cells, keep_best


@dataclass(frozen=True)
class NanodetOptions(DetectOptions):
    """Options for decoding NanoDet, with NanoDet-Plus' defaults.

    Attributes:
        strides: Pixels of the input per cell of each grid, in the order of the output's rows.
        reg_max: Largest distance from a cell to a side of the box, in cells.
        offset: Distance of a cell's centre from its corner, in cells: 0 for NanoDet-Plus, 0.5 for NanoDet.
    """

    score: float = 0.35
    iou: float = 0.6
    top: int = 100
    strides: tuple[int, ...] = (8, 16, 32, 64)
    reg_max: int = 7
    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strides(self.strides)
        at_least(1, reg_max=self.reg_max)
        within(0, 1, offset=self.offset)


def detect_nanodet(
    outputs: Outputs, options: NanodetOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``predictions`` [1, cells, classes + 4 (reg_max + 1)]: classes 0 to 1, then for the left, upper, right
    and lower side the logits of the distances 0 to reg_max, in strides.

    distance = sum of softmax x number, in strides, from the cell (Li et al., Generalized Focal Loss, arXiv
    2006.04388); the boxes end at the input's edges, and each class of a cell is a box of its own, as in the
    project's code.
    """
    predictions = outputs["predictions"]
    sides = 4 * (options.reg_max + 1)
    if predictions.ndim != 3 or len(predictions) != 1 or predictions.shape[2] <= sides:
        raise EngineError(
            f"the output is {list(predictions.shape)}; nanodet with reg_max {options.reg_max} decodes "
            f"[1, cells, classes + {sides}]"
        )
    rows = predictions[0]
    cells, strides = grid_cells(tuple(options.strides), placed.input_width, placed.input_height)
    if len(rows) != len(cells):
        raise EngineError(
            f"the output has {len(rows)} rows, but strides {list(options.strides)} on an input of "
            f"{placed.input_width}x{placed.input_height} make {len(cells)}; set strides in the card"
        )
    scores = rows[:, :-sides]
    likely, classes = np.nonzero(scores > np.float32(options.score))
    logits = rows[likely, -sides:].astype(np.float32).reshape(-1, 4, options.reg_max + 1)
    powers = np.exp(logits - logits.max(axis=2, keepdims=True))
    steps = np.arange(options.reg_max + 1, dtype=np.float32)
    distances = powers @ steps / powers.sum(axis=2) * strides[likely]
    centres = (cells[likely] + np.float32(options.offset)) * strides[likely]
    boxes = np.concatenate([centres - distances[:, :2], centres + distances[:, 2:]], axis=1)
    size = np.array([placed.input_width, placed.input_height] * 2, np.float32)
    boxes = np.clip(boxes, 0, size)
    return keep_best(boxes, scores[likely, classes], classes, options, placed, labels)


def _classes(shape: tuple[int, ...], options: NanodetOptions) -> int:
    return shape[-1] - 4 * (options.reg_max + 1)


DECODERS: Mapping[str, Decoder] = {
    "nanodet": Decoder(NanodetOptions, detect_nanodet, ("predictions",), classes=("predictions", _classes))
}
