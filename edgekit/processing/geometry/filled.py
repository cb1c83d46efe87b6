"""Means over filled polygons of an image, of many polygons at once."""

from __future__ import annotations

import numpy as np

from edgekit.processing.geometry.rectangles import whole_pixels
from edgekit.tensor_spec import Array


def quadrilateral_means(values: Array, corners: Array) -> Array:
    """Compute the mean of a plane within each convex quadrilateral, including its outline.

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
    top_left = np.clip(np.floor(corners.min(axis=1)), 0, size - 1)
    bottom_right = np.clip(np.ceil(corners.max(axis=1)), 0, size - 1).astype(np.int64)
    whole = (whole_pixels(corners - top_left[:, None]) + top_left[:, None]).astype(np.int64)
    top = top_left[:, 1].astype(np.int64)
    rows = bottom_right[:, 1] - top + 1
    offset = np.cumsum(rows) - rows
    left = np.full(int(rows.sum()), width)
    right = np.full(len(left), -1)
    x, y, edge = _outline(whole.reshape(-1, 2), np.roll(whole, -1, axis=1).reshape(-1, 2))
    owner = edge // 4
    in_range = (y >= top[owner]) & (y <= bottom_right[owner, 1])
    row_index = (offset[owner] + y - top[owner])[in_range]
    np.minimum.at(left, row_index, x[in_range])
    np.maximum.at(right, row_index, x[in_range])
    first_column = np.repeat(top_left[:, 0].astype(np.int64), rows)
    left, right = left - first_column, right - first_column
    means = np.zeros(len(corners))
    for index, (x, y) in enumerate(top_left.astype(np.int64).tolist()):
        part = values[y : bottom_right[index, 1] + 1, x : bottom_right[index, 0] + 1]
        column = np.arange(part.shape[1])
        span = slice(offset[index], offset[index] + rows[index])
        drawn = (column >= left[span, None]) & (column <= right[span, None])
        means[index] = part[drawn].mean(dtype=np.float64) if drawn.any() else 0
    return means


def _outline(start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Compute the pixels of lines from int64 [n, 2] to int64 [n, 2]: x, y and the line's index, int64
    [pixels] each."""
    swap = (end[:, 0] < start[:, 0])[:, None]
    start, end = np.where(swap, end, start), np.where(swap, start, end)
    way = end - start
    far = np.abs(way)
    steps = far.max(axis=1)
    line = np.repeat(np.arange(len(start)), steps + 1)
    index = np.arange(len(line)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    extent, n = far[line], np.maximum(steps[line], 1)
    offset = (2 * extent * index[:, None] + n[:, None] - 1) // (2 * n[:, None])
    x, y = (start[line] + np.sign(way)[line] * offset).T
    return x, y, line
