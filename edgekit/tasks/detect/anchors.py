"""SSD's anchors, as TensorFlow's object detection and MediaPipe make them, and boxes relative to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.task_decoder import at_least, within
from edgekit.tasks.detect.boxes import DetectOptions, check_strides
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class AnchorOptions(DetectOptions):
    """Anchor options, with the names and defaults of MediaPipe's SsdAnchorsCalculator. It also makes the
    anchors of TensorFlow's ``ssd_anchor_generator``.

    Attributes:
        strides: Pixels of the input per cell of each layer.
        min_scale, max_scale: Side of an anchor in the first and last layer, as a share of the input's side.
        aspect_ratios: Width / height of each anchor of a cell.
        interpolated_ratio: Width / height of an additional anchor, or 0 for none. Its scale is the geometric
            mean of this layer's and the next layer's scale.
        reduce_lowest: Whether the first layer has only three anchors, with ratios 1, 2 and 0.5.
        scales: Divisors of the network's y, x, height and width, as in TensorFlow's box coder.
    """

    strides: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    min_scale: float = 0.2
    max_scale: float = 0.95
    aspect_ratios: tuple[float, ...] = (1.0, 2.0, 0.5, 3.0, 0.3333)
    interpolated_ratio: float = 1.0
    reduce_lowest: bool = True
    scales: tuple[float, ...] = (10.0, 10.0, 5.0, 5.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strides(self.strides)
        at_least(1, aspect_ratios=len(self.aspect_ratios))
        within(0, 1, min_scale=self.min_scale, max_scale=self.max_scale)
        for ratio in self.aspect_ratios:
            if ratio <= 0:
                raise ValueError(f"aspect_ratios has {ratio:g}; it must be above 0")
        if self.interpolated_ratio < 0:
            raise ValueError(f"interpolated_ratio is {self.interpolated_ratio:g}; it must be at least 0")
        if len(self.scales) != 4 or min(self.scales) <= 0:
            raise ValueError(f"scales is {list(self.scales)}; it must be four numbers above 0")


def anchors_for(options: AnchorOptions, width: int, height: int) -> Array:
    """Compute the anchors of an input: float32 [anchors, 4], read-only. Columns are centre x, centre y, width
    and height, as fractions of the input's size."""
    return _anchors(
        tuple(options.strides),
        (options.min_scale, options.max_scale),
        tuple(options.aspect_ratios),
        options.interpolated_ratio,
        options.reduce_lowest,
        width,
        height,
    )


@lru_cache(maxsize=8)
def anchor_centres(strides: tuple[int, ...], per_layer: int, width: int, height: int) -> Array:
    """Compute the centres of anchors without sizes, like MediaPipe's with ``fixed_anchor_size``: float32
    [anchors, 2], read-only. Columns are x and y, as fractions of the input's size."""
    layers = [
        np.repeat(_cells(stride, width, height), per_layer * len(list(same)), axis=0)
        for stride, same in groupby(strides)
    ]
    centres = np.concatenate(layers).astype(np.float32)
    centres.flags.writeable = False  # every frame's
    return centres


@lru_cache(maxsize=8)
def _anchors(
    strides: tuple[int, ...],
    scales: tuple[float, float],
    ratios: tuple[float, ...],
    interpolated: float,
    reduce_lowest: bool,
    width: int,
    height: int,
) -> Array:
    """Compute the anchors of all layers. Layers of one stride share their cells, so all anchors of a cell are
    consecutive."""
    layers = []
    for stride, same in groupby(enumerate(strides), key=lambda layer: layer[1]):
        shapes = [
            shape
            for number, _ in same
            for shape in _shapes(number, len(strides), scales, ratios, interpolated, reduce_lowest)
        ]
        cells = _cells(stride, width, height)
        centres, sizes = np.repeat(cells, len(shapes), axis=0), np.tile(shapes, (len(cells), 1))
        layers.append(np.concatenate([centres, sizes], axis=1))
    anchors = np.concatenate(layers).astype(np.float32)
    anchors.flags.writeable = False  # every frame's
    return anchors


def _cells(stride: int, width: int, height: int) -> Array:
    """Compute the centres of a layer's cells, row by row: float64 [cells, 2]. Columns are x and y, as
    fractions of the input's size."""
    rows, columns = -(-height // stride), -(-width // stride)
    y, x = np.mgrid[0:rows, 0:columns]
    return np.stack([(x.ravel() + 0.5) / columns, (y.ravel() + 0.5) / rows], axis=1)


def check_count(boxes: int, anchors: int, width: int, height: int, options: str) -> None:
    """Refuse an output with another number of boxes than there are anchors.

    Raises:
        EngineError: they differ.
    """
    if boxes != anchors:
        raise EngineError(
            f"the output has {boxes} boxes, but the card's anchors on an input of {width}x{height} are "
            f"{anchors}; correct {options} in the card"
        )


def _shapes(
    number: int,
    layers: int,
    scales: tuple[float, float],
    ratios: tuple[float, ...],
    interpolated: float,
    reduce_lowest: bool,
) -> list[tuple[float, float]]:
    """Compute the width and height of each anchor of a cell, as fractions of the input's size."""

    def scale_of(layer: int) -> float:
        if layers == 1:
            return sum(scales) / 2
        return scales[0] + (scales[1] - scales[0]) * layer / (layers - 1)

    scale = scale_of(number)
    if number == 0 and reduce_lowest:
        pairs = [(0.1, 1.0), (scale, 2.0), (scale, 0.5)]
    else:
        pairs = [(scale, ratio) for ratio in ratios]
        if interpolated:
            after = 1.0 if number == layers - 1 else scale_of(number + 1)
            pairs.append((float(np.sqrt(scale * after)), interpolated))
    return [(side * ratio**0.5, side / ratio**0.5) for side, ratio in pairs]
