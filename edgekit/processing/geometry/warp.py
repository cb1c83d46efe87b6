"""The part of an image within four corners, made upright: what goes from one model of a cascade to the next.

cubic    cv2.warpPerspective(INTER_CUBIC, BORDER_REPLICATE): within 1 of 255
linear   cv2.warpPerspective(INTER_LINEAR, BORDER_REPLICATE): within 1 of 255
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensor_spec import Array

Interpolation = Literal["linear", "cubic"]

BLOCK_PIXELS = 1 << 12
"""So many pixels of the result at a time: what three channels need is 150 KB and stays in the cache."""
TALL = 1.5
"""A region so many times as high as wide is a line on its side: PaddleOCR's ``get_rotate_crop_image``."""


def crop_text(frame: Array, corners: Array) -> Array:
    """Crop a line of text, upright, like PaddleOCR's ``get_rotate_crop_image``.

    Args:
        frame: uint8 [height, width, 3].
        corners: [4, 2] as ``TextRegions`` has them.

    Returns:
        uint8 [h, w, 3], as large as the region; turned left by a quarter if it is ``TALL``.

    Raises:
        UsageError: the corners enclose nothing.
    """
    line = crop_corners(frame, corners)
    return np.ascontiguousarray(np.rot90(line)) if line.shape[0] >= TALL * line.shape[1] else line


def crop_corners(
    frame: Array,
    corners: Array,
    width: int | None = None,
    height: int | None = None,
    *,
    interpolation: Interpolation = "cubic",
) -> Array:
    """Crop a quadrilateral of a frame as an upright rectangle. Pixels beyond the frame repeat its edge.

    Args:
        frame: uint8 [rows, columns, channels].
        corners: [4, 2]: x, y of the top left, top right, bottom right and bottom left corner.
        width, height: Size of the result in pixels; default: the longer of two opposite sides, rounded down.
        interpolation: Between the frame's pixels.

    Returns:
        uint8 [height, width, channels].

    Raises:
        UsageError: the corners enclose nothing.
    """
    corners = np.asarray(corners, np.float64).reshape(4, 2)
    sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
    width = width or max(1, int(max(sides[0], sides[2])))
    height = height or max(1, int(max(sides[1], sides[3])))
    matrix = perspective(np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64), corners)
    taps = 2 if interpolation == "linear" else 4
    ends = matrix @ np.array([[0, width - 1, 0, width - 1], [0, 0, height - 1, height - 1], [1, 1, 1, 1]])
    if ends[2].min() < 1e-9:  # beyond the horizon of the perspective: sides cross
        raise UsageError(f"corners {corners.tolist()} enclose an empty area")
    source = _source(frame, ends[:2] / ends[2], taps)
    result = np.empty((height, width, frame.shape[2]), np.uint8)
    step = max(1, BLOCK_PIXELS // width)
    for row in range(0, height, step):
        rows, columns = np.arange(row, min(row + step, height)), np.arange(width)
        x, y, z = (np.add.outer(m[1] * rows, m[0] * columns).reshape(-1) + m[2] for m in matrix)
        result[row : row + step] = _sampled(source, x / z, y / z).reshape(len(rows), width, -1)
    return result


def perspective(source: Array, target: Array) -> Array:
    """Compute the matrix [3, 3] that maps four points to four others, like ``cv2.getPerspectiveTransform``.
    With [u, v, w] = M [x, y, 1] it is x' = u / w, y' = v / w.

    Raises:
        UsageError: three of the points are on a line.
    """
    rows = []
    for (x, y), (u, v) in zip(source.tolist(), target.tolist(), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    try:
        solved = np.linalg.solve(np.array(rows), target.reshape(8))
    except np.linalg.LinAlgError:
        raise UsageError(f"corners {target.tolist()} enclose an empty area") from None
    return np.append(solved, 1.0).reshape(3, 3)


class _Source(NamedTuple):
    """The part of a frame that is touched, with the frame's edge going on around it.

    Attributes:
        planes: float32 [channels, rows x columns].
        left, top: The frame's column and row of the part's first.
        low, high: The least and greatest x and y of a position; beyond them all taps are on the edge.
        taps: Across and down.
    """

    planes: Array
    columns: int
    left: int
    top: int
    low: tuple[float, float]
    high: tuple[float, float]
    taps: int


def _source(frame: Array, ends: Array, taps: int) -> _Source:
    """Return the part of a frame between the outermost positions [2, n], x and y."""
    margin = taps // 2
    ranges, margins, low, high = [], [], [], []
    for positions, size in zip(ends, (frame.shape[1], frame.shape[0]), strict=True):
        lowest = min(max(float(positions.min()), -margin), size - 1 + margin)
        highest = min(max(float(positions.max()), -margin), size - 1 + margin)
        first, last = math.floor(lowest) - margin, math.floor(highest) + margin + 1
        start, stop = min(max(first, 0), size - 1), max(min(last, size), 1)
        ranges.append(slice(start, stop))
        margins.append((max(start - first, 0), max(last - stop, 0)))
        low.append(lowest)
        high.append(highest)
    part = frame[ranges[1], ranges[0]]
    if any(map(any, margins)):
        part = np.pad(part, (margins[1], margins[0], (0, 0)), mode="edge")
    planes = part.transpose(2, 0, 1).astype(np.float32, order="C").reshape(part.shape[2], -1)
    left, top = (inner.start - before for inner, (before, _) in zip(ranges, margins, strict=True))
    return _Source(planes, part.shape[1], left, top, (low[0], low[1]), (high[0], high[1]), taps)


def _sampled(source: _Source, x: Array, y: Array) -> Array:
    """Sample pixels uint8 [n, channels] of a frame at positions float64 [n]. Position 0, 0 is the centre of
    the first pixel."""
    x, y = np.clip(x, source.low[0], source.high[0]), np.clip(y, source.low[1], source.high[1])
    left, above = np.floor(x), np.floor(y)
    x_weights, y_weights = _weights(x - left, source.taps), _weights(y - above, source.taps)
    before = source.taps // 2 - 1
    offsets = (above.astype(np.intp) - (before + source.top)) * source.columns
    offsets += left.astype(np.intp) - (before + source.left)
    total, line, pixels = np.zeros((3, len(source.planes), len(x)), np.float32)
    for row in range(source.taps):
        for tap in range(source.taps):
            indices = offsets + (row * source.columns + tap)
            for plane, target in zip(source.planes, pixels if tap else line, strict=True):
                np.take(plane, indices, out=target, mode="clip")
                target *= x_weights[tap]
            if tap:
                line += pixels
        line *= y_weights[row]
        total += line
    return np.clip(np.rint(total), 0, 255).T.astype(np.uint8)


def _weights(fraction: Array, taps: int) -> Array:
    t = fraction.astype(np.float32)
    if taps == 2:
        return np.stack([1 - t, t])
    a = np.float32(-0.75)
    before = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a
    left = ((a + 2) * t - (a + 3)) * t * t + 1
    right = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1
    return np.stack([before, left, right, 1 - before - left - right])
