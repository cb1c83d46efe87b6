"""Options and box selection shared by all detectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.nms import suppress
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import at_least, within
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class DetectOptions:
    """Options for decoding boxes.

    Attributes:
        score: Minimum score, 0 to 1.
        iou: Maximum intersection over union of two kept boxes, 0 to 1.
        top: Maximum number of boxes.
        class_agnostic: Whether boxes of different classes suppress each other.
    """

    score: float = 0.3
    iou: float = 0.5
    top: int = 100
    class_agnostic: bool = False

    def __post_init__(self) -> None:
        at_least(1, top=self.top)
        within(0, 1, score=self.score, iou=self.iou)
        if not isinstance(self.class_agnostic, bool):
            raise ValueError(f"class_agnostic is {self.class_agnostic!r}; it must be true or false")

    def rivals(self, classes: Array) -> Array:
        """Return each box's group for non-maximum suppression, int64 [n], from the classes [n]."""
        return np.zeros_like(classes) if self.class_agnostic else classes


def check_strides(strides: Sequence[int]) -> None:
    """Check that strides define grids.

    Raises:
        ValueError: strides is empty, or a stride is below 1.
    """
    if not strides:
        raise ValueError("strides is empty; it must name the grids, e.g. [8, 16, 32]")
    at_least(1, strides=min(strides))


@lru_cache(maxsize=8)
def grid_cells(strides: tuple[int, ...], width: int, height: int) -> tuple[Array, Array]:
    """Compute cell x, y [cells, 2] and stride [cells, 1] of all grids in order, row by row: float32,
    read-only. A grid covers the input, and its last cells may exceed it. A model has one size.
    """
    cells, scales = [], []
    for stride in strides:
        y, x = np.mgrid[0 : -(-height // stride), 0 : -(-width // stride)]
        cells.append(np.stack([x.ravel(), y.ravel()], axis=1))
        scales.append(np.full((x.size, 1), stride))
    grids = np.concatenate(cells).astype(np.float32), np.concatenate(scales).astype(np.float32)
    for array in grids:
        array.flags.writeable = False  # every frame's
    return grids


def best_classes(scores: Array, threshold: float) -> tuple[Array, Array, Array]:
    """Select the boxes whose best class scores above ``threshold``.

    Args:
        scores: [classes, n], 0 to 1.

    Returns:
        Indices of the boxes [k], in their order; the class of each [k] int64; its score [k].
    """
    if not len(scores):
        raise EngineError("the output has no class scores; the card's task.decode does not fit the model")
    # One maximum over whole rows first: few boxes are likely, and only their classes are looked at.
    likely = np.flatnonzero(scores.max(axis=0) > np.float32(threshold))
    picked = scores[:, likely]
    classes = picked.argmax(axis=0)
    return likely, classes, picked[classes, np.arange(len(likely))]


def corners(boxes: Array) -> Array:
    """Convert boxes [..., 4] from centre x, centre y, width, height to x1, y1, x2, y2."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def input_pixels(boxes: Array, placed: ImagePlacement) -> Array:
    """Scale positions [..., 2 or 4 ...] from 0 to 1 of the input to x, y, x, y ... in its pixels."""
    size = [placed.input_width, placed.input_height] * (boxes.shape[-1] // 2)
    scaled: Array = boxes * np.array(size, np.float32)
    return scaled


def keep_best(
    boxes: Array,
    scores: Array,
    classes: Array,
    options: DetectOptions,
    placed: ImagePlacement,
    labels: Sequence[str] = (),
    landmarks: Array | None = None,
) -> Detections:
    """Run non-maximum suppression in the input's pixels, then map the boxes to the frame's pixels.

    Args:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the input's pixels.
        scores: float32 [n].
        classes: int64 [n].
        landmarks: float32 [n, points, 2]: x, y in the input's pixels.
    """
    survivors = suppress(boxes, scores, options.rivals(classes), options.iou, options.top)
    return Detections(
        placed.to_frame(boxes[survivors]).astype(np.float32),
        scores[survivors].astype(np.float32),
        classes[survivors].astype(np.int64),
        labels,
        placed.to_frame(landmarks[survivors]).astype(np.float32) if landmarks is not None else None,
    )
