"""Means over filled polygons of a picture, of many polygons at once."""

from __future__ import annotations

import numpy as np

from edgekit.processing.geometry.rectangles import whole_pixels
from edgekit.tensor_spec import Array


def quadrilateral_means(values: Array, corners: Array) -> Array:
    """The mean of a plane within each convex quadrilateral, its outline included.

    The pixels are those of OpenCV's ``fillPoly``: between the outermost pixels of the outline, which is
    drawn by Bresenham's algorithm from the left. Corners are cut to whole pixels as PaddleOCR's
    ``box_score_fast`` does it: relative to the least ones, rounded down.

    Args:
        values: float [height, width].
        corners: float64 [n, 4, 2]: x, y. What is outside of the plane does not count.

    Returns:
        float64 [n].
    """
    height, width = values.shape
    if not len(corners):
        return np.zeros(0)
    size = np.array([width, height])
    least = np.clip(np.floor(corners.min(axis=1)), 0, size - 1)
    most = np.clip(np.ceil(corners.max(axis=1)), 0, size - 1).astype(np.int64)
    whole = (whole_pixels(corners - least[:, None]) + least[:, None]).astype(np.int64)
    top = least[:, 1].astype(np.int64)
    rows = most[:, 1] - top + 1
    offset = np.cumsum(rows) - rows
    left = np.full(int(rows.sum()), width)
    right = np.full(len(left), -1)
    x, y, edge = _outline(whole.reshape(-1, 2), np.roll(whole, -1, axis=1).reshape(-1, 2))
    owner = edge // 4
    seen = (y >= top[owner]) & (y <= most[owner, 1])
    at = (offset[owner] + y - top[owner])[seen]
    np.minimum.at(left, at, x[seen])
    np.maximum.at(right, at, x[seen])
    first_column = np.repeat(least[:, 0].astype(np.int64), rows)
    left, right = left - first_column, right - first_column
    means = np.zeros(len(corners))
    for index, (x, y) in enumerate(least.astype(np.int64).tolist()):
        part = values[y : most[index, 1] + 1, x : most[index, 0] + 1]
        column = np.arange(part.shape[1])
        span = slice(offset[index], offset[index] + rows[index])
        drawn = (column >= left[span, None]) & (column <= right[span, None])
        means[index] = part[drawn].mean(dtype=np.float64) if drawn.any() else 0
    return means


def _outline(start: Array, end: Array) -> tuple[Array, Array, Array]:
    """The pixels of lines int64 [n, 2] to [n, 2] as x, y and the line's number: int64 [pixels] each."""
    swap = (end[:, 0] < start[:, 0])[:, None]
    start, end = np.where(swap, end, start), np.where(swap, start, end)
    way = end - start
    far = np.abs(way)
    steps = far.max(axis=1)
    line = np.repeat(np.arange(len(start)), steps + 1)
    index = np.arange(len(line)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    across, n = far[line], np.maximum(steps[line], 1)
    moved = (2 * across * index[:, None] + n[:, None] - 1) // (2 * n[:, None])
    x, y = (start[line] + np.sign(way)[line] * moved).T
    return x, y, line
