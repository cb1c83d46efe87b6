"""Convex hulls and the smallest rectangles around them, of many sets of points at once.

OpenCV's ``convexHull`` and ``minAreaRect`` for as many sets as there are, without a loop over them. The
rectangle of least area has one side on an edge of the hull (Freeman and Shapira, 1975).
"""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array


def hulls(x: Array, y: Array, group: Array, count: int) -> Array:
    """Compute the convex hull of each group of points.

    Args:
        x, y: int64 or float64 [n].
        group: int64 [n], from 0 to ``count`` - 1; each has a point.

    Returns:
        float64 [count, m, 2]: the vertices in order as x, y; a hull of fewer repeats its first.
    """
    order = np.lexsort((x, y, group))
    x, y, group = x[order], y[order], group[order]
    # Only the leftmost and the rightmost point of a group's row can be on its hull.
    starts = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (y[1:] != y[:-1])))
    ends = np.append(starts[1:], len(x)) - 1
    # The right side, seen in a mirror, is a left side.
    sides = [(x[starts], 0, 1), (-x[ends], count, -1)]
    chain_x = np.concatenate([side for side, _, _ in sides]).astype(np.float64)
    chain_y = np.concatenate([y[starts], y[starts]]).astype(np.float64)
    chain = np.concatenate([group[starts] + shift for _, shift, _ in sides])
    while True:
        # A point at or right of the line between its neighbours is within the hull: it goes.
        before, middle, after = slice(None, -2), slice(1, -1), slice(2, None)
        inner = (chain[before] == chain[middle]) & (chain[after] == chain[middle])
        rise, fall = chain_y[after] - chain_y[before], chain_y[middle] - chain_y[before]
        within = (chain_x[middle] - chain_x[before]) * rise >= (chain_x[after] - chain_x[before]) * fall
        on_hull = np.ones(len(chain), np.bool_)
        on_hull[1:-1] = ~(inner & within)
        if on_hull.all():
            break
        chain_x, chain_y, chain = chain_x[on_hull], chain_y[on_hull], chain[on_hull]
    # Down the left side, up the right one: the order of the vertices around the hull.
    left = chain < count
    rank = np.where(left, chain_y, -chain_y)
    real_x = np.where(left, chain_x, -chain_x)
    owner = np.where(left, chain, chain - count)
    order = np.lexsort((rank, ~left, owner))
    owner = owner[order]
    first = np.searchsorted(owner, np.arange(count))
    place = np.arange(len(owner)) - first[owner]
    points = np.stack([real_x[order], chain_y[order]], axis=1)
    padded = np.repeat(points[first][:, None], place.max() + 1, axis=1)
    padded[owner, place] = points
    return padded


def smallest_rectangles(hull: Array) -> tuple[Array, Array]:
    """Compute the rectangle with the smallest area around each hull.

    Args:
        hull: float64 [n, m, 2], as ``hulls`` gives them.

    Returns:
        Corners float64 [n, 4, 2]: top left, top right, bottom right, bottom left, as PaddleOCR's
        ``get_mini_boxes`` orders them; and the shorter side float64 [n].
    """
    edges = np.roll(hull, -1, axis=1) - hull
    length = np.hypot(edges[..., 0], edges[..., 1])
    along = edges / np.where(length > 0, length, 1)[..., None]
    normal = np.stack([-along[..., 1], along[..., 0]], axis=-1)
    spans = []
    for axis in (along, normal):
        projection = axis @ hull.transpose(0, 2, 1)  # [n, edges, points]
        spans.append((projection.min(axis=2), projection.max(axis=2)))
    (low, high), (near, far) = spans
    area = np.where(length > 0, (high - low) * (far - near), np.inf)
    index, best = np.arange(len(hull)), area.argmin(axis=1)
    u, v = along[index, best], normal[index, best]
    low, high, near, far = (end[index, best][:, None] for end in (low, high, near, far))
    sides = (low, near), (high, near), (high, far), (low, far)
    corners = np.stack([a * u + b * v for a, b in sides], axis=1)
    return in_order(corners), np.minimum(high - low, far - near)[:, 0]


def in_order(corners: Array) -> Array:
    """Order corners [n, 4, 2] as top left, top right, bottom right, bottom left. The upper of the two
    leftmost is first, the upper of the two rightmost second (PaddleOCR's ``get_mini_boxes``)."""
    index = np.arange(len(corners))[:, None]
    sorted_by_x = corners[index, np.argsort(corners[..., 0], axis=1, kind="stable")]
    left, right = sorted_by_x[:, :2], sorted_by_x[:, 2:]
    left = left[index, np.argsort(left[..., 1], axis=1, kind="stable")]
    right = right[index, np.argsort(right[..., 1], axis=1, kind="stable")]
    return np.stack([left[:, 0], right[:, 0], right[:, 1], left[:, 1]], axis=1)


def enlarge(corners: Array, distance: Array) -> Array:
    """Grow each rectangle by a distance, with round corners, in whole pixels.

    The points of Clipper's offset with round joins and an arc tolerance of 0.25 (Angus Johnson, Clipper
    6.4, ``ClipperOffset``), which works in whole numbers: so corners are cut to them first, and points
    rounded.

    Args:
        corners: float64 [n, 4, 2], clockwise as seen with y downwards.
        distance: float64 [n], above 0.

    Returns:
        float64 [n, 4 x k, 2]: points, of which the outline is made.
    """
    whole = whole_pixels(corners)
    edges = np.roll(whole, -1, axis=1) - whole
    edges /= np.maximum(np.hypot(edges[..., 0], edges[..., 1]), 1e-12)[..., None]
    after = np.stack([edges[..., 1], -edges[..., 0]], axis=-1)  # outwards, of the edge after each corner
    before = np.roll(after, 1, axis=1)
    steps = (np.pi / np.arccos(1 - np.minimum(0.25, distance * 0.25) / distance))[:, None]
    turn = np.arctan2(
        before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0], (before * after).sum(-1)
    )
    count = np.maximum(np.rint(steps / (2 * np.pi) * np.abs(turn)), 1)  # of points on a corner's arc
    index = np.arange(int(count.max(initial=1)))
    angle = np.minimum(index, count[..., None] - 1) * (2 * np.pi / steps)[..., None]
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = before[..., 0:1], before[..., 1:2]
    arc = np.stack([x * cos - y * sin, x * sin + y * cos], axis=-1)  # [n, 4, k, 2]
    outwards = np.concatenate([arc, after[:, :, None]], axis=2)
    grown = whole[:, :, None] + outwards * distance[:, None, None, None]
    rounded: Array = np.trunc(grown + np.copysign(0.5, grown))
    return rounded.reshape(len(corners), -1, 2)


def whole_pixels(points: Array) -> Array:
    """Truncate points to whole pixels towards 0. A value that is 12 except for rounding noise becomes 12."""
    whole: Array = np.trunc(np.round(points, 3))
    return whole
