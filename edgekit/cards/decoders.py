"""From a model's raw outputs to the task's answer: one function a form of output, found in ``DECODERS``.

To add one: write its options (a frozen dataclass whose fields have defaults; a card sets them, and
``__post_init__`` checks them) and its function, and give it a line in ``DECODERS``. Cards, their checks and
their errors follow from that line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgekit.cards.nms import suppress
from edgekit.cards.predictions import Classes, Detections, ImagePlacement
from edgekit.errors import EngineError
from edgekit.tensors import Array

Outputs = Mapping[str, Array]  # by role


@dataclass(frozen=True)
class ClassifyOptions:
    """How many classes are answered; an integer output means (value - zero_point) x scale."""

    top: int = 5
    scale: float = 1.0
    zero_point: int = 0

    def __post_init__(self) -> None:
        _at_least(1, top=self.top)
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale is {self.scale:g}; it must be above 0")


@dataclass(frozen=True)
class DetectOptions:
    """How boxes are answered: a least score, the overlap from which one of two goes, how many at most."""

    score: float = 0.3
    iou: float = 0.5
    top: int = 100

    def __post_init__(self) -> None:
        _at_least(1, top=self.top)
        _within(0, 1, score=self.score, iou=self.iou)


@dataclass(frozen=True)
class YoloxOptions(DetectOptions):
    """``strides``: pixels of the input per cell of each grid, in the order of the output's rows."""

    strides: tuple[int, ...] = (8, 16, 32)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.strides:
            raise ValueError("strides is empty; it must name the grids, e.g. [8, 16, 32]")
        _at_least(1, strides=min(self.strides))


@dataclass(frozen=True)
class SsdOptions(DetectOptions):
    """``first_class``: number of the class in the first column, e.g. 1 where background was cut off."""

    first_class: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(0, first_class=self.first_class)


@dataclass(frozen=True)
class CenterfaceOptions(DetectOptions):
    """``stride``: pixels of the input per cell of the heatmap."""

    stride: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(1, stride=self.stride)


def classify_logits(outputs: Outputs, options: ClassifyOptions, placed: ImagePlacement) -> Classes:
    """``scores`` [1, classes] before softmax."""
    scores = _real(outputs["scores"], options)
    powers = np.exp(scores - scores.max())
    return _best(powers / powers.sum(), options)


def classify_probabilities(outputs: Outputs, options: ClassifyOptions, placed: ImagePlacement) -> Classes:
    """``scores`` [1, classes], already 0 to 1."""
    return _best(_real(outputs["scores"], options), options)


def _real(scores: Array, options: ClassifyOptions) -> Array:
    real = scores.reshape(-1).astype(np.float32)
    return (real - np.float32(options.zero_point)) * np.float32(options.scale)


def _best(scores: Array, options: ClassifyOptions) -> Classes:
    order = np.argsort(-scores, kind="stable")[: options.top]
    return Classes(order, scores[order])


def detect_yolox(outputs: Outputs, options: YoloxOptions, placed: ImagePlacement) -> Detections:
    """``predictions`` [1, cells, 5 + classes]: x, y, width, height, objectness, classes, sigmoid done.

    centre = (xy + cell) stride, size = exp(wh) stride, score = objectness x class: Ge et al., YOLOX,
    arXiv 2107.08430, and its export's layout: grids one after another, each row by row.
    """
    rows = outputs["predictions"].reshape(-1, outputs["predictions"].shape[-1])
    cells, strides = _grids(tuple(options.strides), placed.input_width, placed.input_height)
    if len(rows) != len(cells):
        raise EngineError(
            f"the output has {len(rows)} rows, and strides {list(options.strides)} on an input of "
            f"{placed.input_width}x{placed.input_height} make {len(cells)}; set strides in the card"
        )
    # No class scores above its objectness, so most rows need no look at their classes.
    likely = np.flatnonzero(rows[:, 4] > options.score)
    rows, cells, strides = rows[likely], cells[likely], strides[likely]
    scores = rows[:, 5:] * rows[:, 4:5]
    classes = scores.argmax(axis=1) if len(rows) else np.zeros(0, np.int64)
    best = scores[np.arange(len(rows)), classes]
    confident = best > options.score
    rows, cells, strides = rows[confident], cells[confident], strides[confident]
    centre = (rows[:, 0:2] + cells) * strides
    # 20: exp(20) strides are far outside of any picture, and the exponential does not overflow.
    half = np.exp(np.minimum(rows[:, 2:4], 20)) * strides / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1)
    return _kept(boxes, best[confident], classes[confident], options, placed)


@lru_cache(maxsize=8)
def _grids(strides: tuple[int, ...], width: int, height: int) -> tuple[Array, Array]:
    """Cell x, y [cells, 2] and stride [cells, 1] of all grids, float32, read-only. A model has one size."""
    cells, scales = [], []
    for stride in strides:
        y, x = np.mgrid[0 : height // stride, 0 : width // stride]
        cells.append(np.stack([x.ravel(), y.ravel()], axis=1))
        scales.append(np.full((x.size, 1), stride))
    grids = np.concatenate(cells).astype(np.float32), np.concatenate(scales).astype(np.float32)
    for array in grids:
        array.flags.writeable = False  # every frame's
    return grids


def detect_ssd(outputs: Outputs, options: SsdOptions, placed: ImagePlacement) -> Detections:
    """``boxes`` [1, n, (1,) 4]: y1, x1, y2, x2, 0 to 1; ``scores`` [1, n, classes], 0 to 1."""
    scores = outputs["scores"].reshape(-1, outputs["scores"].shape[-1])
    boxes = outputs["boxes"].reshape(-1, 4)
    if len(boxes) != len(scores):
        raise EngineError(f"boxes has {len(boxes)} rows and scores {len(scores)}; they must be as many")
    best = scores.max(axis=1)
    confident = np.flatnonzero(best > options.score)
    classes = scores[confident].argmax(axis=1) + options.first_class
    size = np.array([placed.input_width, placed.input_height] * 2, np.float32)
    return _kept(boxes[confident][:, [1, 0, 3, 2]] * size, best[confident], classes, options, placed)


def detect_centerface(outputs: Outputs, options: CenterfaceOptions, placed: ImagePlacement) -> Detections:
    """``heatmap`` [1, 1, h, w], ``scale`` and ``offset`` [1, 2, h, w] as y, x; ``landmarks`` [1, 10, h, w].

    size = exp(scale) stride, centre = (cell + offset + 0.5) stride, landmark = box corner + size x value,
    five of them, each as y, x: Xu et al., CenterFace, arXiv 1911.03599, and its ONNX file's planes.
    """
    heat = outputs["heatmap"][0, 0]
    rows, columns = np.nonzero(heat > options.score)
    cells = np.stack([columns, rows], axis=1).astype(np.float32)
    picked = {role: outputs[role][0][:, rows, columns].T for role in ("scale", "offset", "landmarks")}
    size = np.exp(np.minimum(picked["scale"][:, ::-1], 20)) * options.stride
    corner = (cells + picked["offset"][:, ::-1] + 0.5) * options.stride - size / 2
    points = picked["landmarks"].reshape(len(rows), outputs["landmarks"].shape[1] // 2, 2)[:, :, ::-1]
    landmarks = points * size[:, None, :] + corner[:, None, :]
    boxes = np.concatenate([corner, corner + size], axis=1)
    return _kept(boxes, heat[rows, columns], np.zeros(len(rows), np.int64), options, placed, landmarks)


def _kept(
    boxes: Array,
    scores: Array,
    classes: Array,
    options: DetectOptions,
    placed: ImagePlacement,
    landmarks: Array | None = None,
) -> Detections:
    """Suppress in the input's pixels, then go over to the frame's."""
    kept = suppress(boxes, scores, classes, options.iou, options.top)
    return Detections(
        placed.to_frame(boxes[kept]).astype(np.float32),
        scores[kept].astype(np.float32),
        classes[kept].astype(np.int64),
        landmarks=placed.to_frame(landmarks[kept]).astype(np.float32) if landmarks is not None else None,
    )


@dataclass(frozen=True)
class Decoder:
    """One form of a task's outputs.

    Attributes:
        roles: The outputs it needs, by what they mean; a card says which output each one is.
        options: The frozen dataclass of what a card may set.
        function: (outputs by role, options, placement) -> the answer, without labels.
    """

    roles: tuple[str, ...]
    options: type[Any]
    function: Callable[[Outputs, Any, ImagePlacement], Classes | Detections]


DECODERS: Mapping[str, Mapping[str, Decoder]] = {
    "classify": {
        "logits": Decoder(("scores",), ClassifyOptions, classify_logits),
        "probabilities": Decoder(("scores",), ClassifyOptions, classify_probabilities),
    },
    "detect": {
        "centerface": Decoder(
            ("heatmap", "scale", "offset", "landmarks"), CenterfaceOptions, detect_centerface
        ),
        "ssd": Decoder(("boxes", "scores"), SsdOptions, detect_ssd),
        "yolox": Decoder(("predictions",), YoloxOptions, detect_yolox),
    },
}
"""Task -> form of its outputs -> how it is decoded."""


def _at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if not hasattr(value, "__index__"):
            raise ValueError(f"{name} is {value!r}; it must be a whole number")
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")


def _within(low: float, high: float, **values: float) -> None:
    for name, value in values.items():
        if not hasattr(value, "__float__"):
            raise ValueError(f"{name} is {value!r}; it must be a number")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value:g}; it must be from {low:g} to {high:g}")
