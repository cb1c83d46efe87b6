"""What all detectors share: their options, and which boxes are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.nms import suppress
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.tasks.decoder import at_least, within
from edgekit.processing.tasks.detect.prediction import Detections
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class DetectOptions:
    """How boxes are answered.

    Attributes:
        score: Least score, 0 to 1.
        iou: The overlap from which one of two boxes goes, 0 to 1.
        top: How many stay at most.
        class_agnostic: Whether one of two goes though they are of different classes.
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
        """Boxes of one number compete in non-maximum suppression: int64 [n], for their classes [n]."""
        return np.zeros_like(classes) if self.class_agnostic else classes


def check_strides(strides: Sequence[int]) -> None:
    """Refuse strides that make no grids.

    Raises:
        ValueError: there is none, or one is below 1.
    """
    if not strides:
        raise ValueError("strides is empty; it must name the grids, e.g. [8, 16, 32]")
    at_least(1, strides=min(strides))


@lru_cache(maxsize=8)
def grid_cells(strides: tuple[int, ...], width: int, height: int) -> tuple[Array, Array]:
    """Cell x, y [cells, 2] and stride [cells, 1] of all grids, one after another, each row by row: float32,
    read-only. A grid covers the input, the last cells maybe beyond it. A model has one size.
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


def best_classes(scores: Array, least: float) -> tuple[Array, Array, Array]:
    """The boxes whose best class scores above ``least``.

    Args:
        scores: [classes, n], 0 to 1.
        least: A score of a class.

    Returns:
        Which boxes [k], in their order; the class of each [k] int64; its score [k].
    """
    if not len(scores):
        raise EngineError("the output has no class scores; the card's task.decode does not fit the model")
    # One maximum over whole rows first: few boxes are likely, and only their classes are looked at.
    likely = np.flatnonzero(scores.max(axis=0) > np.float32(least))
    picked = scores[:, likely]
    classes = picked.argmax(axis=0)
    return likely, classes, picked[classes, np.arange(len(likely))]


def corners(boxes: Array) -> Array:
    """Boxes [..., 4] as centre x, centre y, width, height -> as x1, y1, x2, y2."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def input_pixels(boxes: Array, placed: ImagePlacement) -> Array:
    """Positions [..., 2 or 4 ...] from 0 to 1 of the input as x, y, x, y ... in its pixels."""
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
    """Non-maximum suppression in the input's pixels, then positions in the frame's.

    Args:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the input's pixels.
        scores: float32 [n].
        classes: int64 [n].
        options: The overlap from which one of two boxes goes, and how many stay.
        placed: Where the frame lies in the input.
        labels: The card's.
        landmarks: float32 [n, points, 2]: x, y in the input's pixels.
    """
    kept = suppress(boxes, scores, options.rivals(classes), options.iou, options.top)
    return Detections(
        placed.to_frame(boxes[kept]).astype(np.float32),
        scores[kept].astype(np.float32),
        classes[kept].astype(np.int64),
        labels,
        placed.to_frame(landmarks[kept]).astype(np.float32) if landmarks is not None else None,
    )
