"""Planes of an output (classes, depth, pixels) at the frame's pixels.

Pixels are areas: the centre of the frame's pixel (x, y) is at (x + 0.5, y + 0.5), as OpenCV's INTER_LINEAR,
Pillow and PyTorch's ``interpolate(align_corners=False)`` have it. What was padded around the frame does not
count: beyond the frame's own cells their edge goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tensor_spec import Array

Layout = Literal["NCHW", "NHWC"]
ROWS = 64
"""Of the frame at a time: three planes of 1920 columns are 1.5 MB."""


class Taps(NamedTuple):
    """For each pixel of one axis of the frame: the cells on both sides of it, intp [n], and the weight of
    the second, float32 [n]."""

    first: Array
    second: Array
    weight: Array


def planes_of(output: Array, layout: str, description: str) -> Array:
    """Return an output as planes [channels, height, width]. A batch dimension of one is dropped. A single
    plane may lack its channel dimension.

    Raises:
        EngineError: it has other dimensions.
    """
    planes: Array
    if output.ndim == 4 and output.shape[0] == 1:
        planes = output[0].transpose(2, 0, 1) if layout == "NHWC" else output[0]
    else:
        planes = output[None] if output.ndim == 2 else output
    if planes.ndim != 3 or not planes.size:
        shape = "[1, height, width, channels]" if layout == "NHWC" else "[1, channels, height, width]"
        raise EngineError(f"{description} is {shape}, but the output is {list(output.shape)}")
    return planes


def content(placed: ImagePlacement, shape: Sequence[int]) -> tuple[slice, slice]:
    """Return the rows and columns of a plane [height, width] that show the frame, in whole cells."""
    rows, columns = shape
    return (
        _cells(placed.offset_y, placed.scale_y * placed.frame_height, placed.input_height, rows),
        _cells(placed.offset_x, placed.scale_x * placed.frame_width, placed.input_width, columns),
    )


def _cells(offset: float, extent: float, size: int, cells: int) -> slice:
    first = min(max(round(offset * cells / size), 0), cells - 1)
    return slice(first, max(min(round((offset + extent) * cells / size), cells), first + 1))


def frame_taps(placed: ImagePlacement, shape: Sequence[int]) -> tuple[Taps, Taps]:
    """Compute the cells of a plane [height, width] on both sides of each frame row and of each frame
    column."""
    rows, columns = content(placed, shape)
    vertical = (placed.frame_height, placed.scale_y, placed.offset_y, shape[0] / placed.input_height, rows)
    horizontal = (placed.frame_width, placed.scale_x, placed.offset_x, shape[1] / placed.input_width, columns)
    return _taps(*vertical), _taps(*horizontal)


def _taps(size: int, scale: float, offset: float, cells_a_pixel: float, content: slice) -> Taps:
    positions = ((np.arange(size) + 0.5) * scale + offset) * cells_a_pixel - 0.5
    positions = np.clip(positions, content.start, content.stop - 1)
    first = np.floor(positions).astype(np.intp)
    return Taps(first, np.minimum(first + 1, content.stop - 1), (positions - first).astype(np.float32))


def linear_to_frame(planes: Array, placed: ImagePlacement) -> Array:
    """Resize planes to the frame's size by bilinear interpolation.

    Args:
        planes: [channels, height, width].
        placed: Placement of the frame in the input; planes cover the input.

    Returns:
        float32 [channels, frame height, frame width].
    """
    planes = planes.astype(np.float32, copy=False)
    y_taps, x_taps = frame_taps(placed, planes.shape[1:])
    result = np.empty((len(planes), placed.frame_height, placed.frame_width), np.float32)
    for plane, target in zip(planes, result, strict=True):
        # Across first, on the rows that are there: most planes are smaller than the frame.
        wide = plane[:, x_taps.first]
        wide += (plane[:, x_taps.second] - wide) * x_taps.weight
        for start in range(0, len(target), ROWS):
            part = slice(start, start + ROWS)
            low = wide[y_taps.first[part]]
            np.subtract(wide[y_taps.second[part]], low, out=target[part])
            target[part] *= y_taps.weight[part, None]
            target[part] += low
    return result


def nearest_to_frame(plane: Array, placed: ImagePlacement) -> Array:
    """Return a plane [height, width] at the frame's size; each pixel takes the cell that its centre is in."""
    taps = frame_taps(placed, plane.shape)
    rows, columns = (np.where(axis.weight >= 0.5, axis.second, axis.first) for axis in taps)
    return plane[rows[:, None], columns]
