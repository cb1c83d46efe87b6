"""The part of a picture within four corners, made upright: what goes from one model of a cascade to the next.

cubic    cv2.warpPerspective(INTER_CUBIC, BORDER_REPLICATE): within 1 of 255
linear   cv2.warpPerspective(INTER_LINEAR, BORDER_REPLICATE): within 1 of 255
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensors import Array

Interpolation = Literal["linear", "cubic"]

BLOCK_PIXELS = 1 << 14
"""So many pixels of the result at a time: 16 taps of three channels are 3 MB."""
TALL = 1.5
"""A region so many times as high as wide is a line on its side: PaddleOCR's ``get_rotate_crop_image``."""


def crop_text(frame: Array, corners: Array) -> Array:
    """A line of text, upright, as PaddleOCR's ``get_rotate_crop_image`` cuts it.

    Args:
        frame: uint8 [height, width, 3].
        corners: [4, 2] as ``TextRegions`` has them.

    Returns:
        uint8 [h, w, 3], as large as the region; turned left by a quarter where it is ``TALL``.

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
    """The quadrilateral of a frame as an upright rectangle. Beyond the frame its edge goes on.

    Args:
        frame: uint8 [rows, columns, channels].
        corners: [4, 2]: x, y of the top left, top right, bottom right and bottom left corner.
        width, height: Of the result; by default the longer of two opposite sides, rounded down.
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
    result = np.empty((height * width, frame.shape[2]), np.uint8)
    for first in range(0, len(result), BLOCK_PIXELS):
        at = np.arange(first, min(first + BLOCK_PIXELS, len(result)))
        x, y, z = matrix @ np.stack([at % width, at // width, np.ones(len(at))])
        if not np.all(np.abs(z) > 1e-12):
            raise UsageError(f"corners {corners.tolist()} enclose nothing that can be cut out")
        result[at] = _sampled(frame, x / z, y / z, interpolation)
    return result.reshape(height, width, -1)


def perspective(source: Array, target: Array) -> Array:
    """The matrix [3, 3] that takes four points to four others, as ``cv2.getPerspectiveTransform``: with
    [u, v, w] = M [x, y, 1] it is x' = u / w, y' = v / w.

    Raises:
        UsageError: three of the points are on a line.
    """
    rows = []
    for (x, y), (u, v) in zip(source.tolist(), target.tolist(), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    try:
        solved = np.linalg.solve(np.array(rows), target.reshape(8))
    except np.linalg.LinAlgError:
        raise UsageError(f"corners {target.tolist()} enclose nothing that can be cut out") from None
    return np.append(solved, 1.0).reshape(3, 3)


def _sampled(frame: Array, x: Array, y: Array, interpolation: Interpolation) -> Array:
    """Pixels uint8 [n, channels] of a frame at positions x, y float64 [n]; 0, 0 is the first one's centre."""
    taps = 2 if interpolation == "linear" else 4
    limit = 2.0 * max(frame.shape)  # farther outside it is the same edge, and whole numbers hold it
    x, y = np.clip(x, -limit, limit), np.clip(y, -limit, limit)
    left, above = np.floor(x), np.floor(y)
    across, down = _weights(x - left, taps), _weights(y - above, taps)
    left, above = left.astype(np.intp) - (taps // 2 - 1), above.astype(np.intp) - (taps // 2 - 1)
    # The part that is touched, with the frame's edge going on around it; then a tap's pixels lie together.
    first_column, first_row = int(left.min()), int(above.min())
    columns = np.clip(np.arange(first_column, int(left.max()) + taps), 0, frame.shape[1] - 1)
    rows = np.clip(np.arange(first_row, int(above.max()) + taps), 0, frame.shape[0] - 1)
    part = frame[rows[:, None], columns]
    channels = part.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(part.reshape(len(rows), -1), taps * channels, axis=1)
    windows = windows[:, ::channels]
    total = np.zeros((len(x), channels), np.float32)
    for tap in range(taps):
        pixels = windows[above - first_row + tap, left - first_column].reshape(-1, taps, channels)
        total += np.einsum("ntc,nt->nc", pixels.astype(np.float32), across) * down[:, tap, None]
    return np.clip(np.rint(total), 0, 255).astype(np.uint8)


def _weights(fraction: Array, taps: int) -> Array:
    """Of each tap, float32 [n, taps]; of four Keys' kernel with a = -0.75, as OpenCV's."""
    t = fraction.astype(np.float32)
    if taps == 2:
        return np.stack([1 - t, t], axis=1)
    a = np.float32(-0.75)
    before = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a
    left = ((a + 2) * t - (a + 3)) * t * t + 1
    right = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1
    return np.stack([before, left, right, 1 - before - left - right], axis=1)
