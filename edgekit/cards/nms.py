"""Non-maximum suppression: of boxes of one class that cover each other, the best stays."""

from __future__ import annotations

import numpy as np

from edgekit.tensors import Array

CANDIDATES = 1024
"""Only so many of the best boxes are compared, each with each: 1024 take 14 ms and 10 MB, 300 take 1 ms."""


def suppress(boxes: Array, scores: Array, classes: Array, iou: float, top: int) -> Array:
    """Greedy non-maximum suppression within each class.

    Args:
        boxes: float32 [n, 4]: x1, y1, x2, y2.
        scores: float32 [n].
        classes: int64 [n].
        iou: A box goes when it overlaps a better one of its class by more: intersection over union.
        top: At most so many boxes stay.

    Returns:
        int64 [kept]: which boxes stay, best first; equal scores keep their order.
    """
    order = np.argsort(-scores, kind="stable")[:CANDIDATES]
    if len(order) < 2:
        return order[:top]
    best = boxes[order]
    covered = overlaps(best, best, iou)
    kinds = classes[order]
    if kinds.min() != kinds.max():
        covered &= kinds[:, None] == kinds[None, :]
    alive = np.ones(len(order), np.bool_)
    kept = []
    for index in range(len(order)):
        if alive[index]:
            kept.append(index)
            if len(kept) == top:
                break
            alive &= ~covered[index]
    return order[kept]


def overlaps(boxes: Array, others: Array, iou: float) -> Array:
    """Whether each of boxes [n, 4] overlaps each of others [m, 4] by more than ``iou``: bool [n, m]."""
    (x1, y1, x2, y2), (left, top, right, bottom) = boxes.T[:, :, None], others.T[:, None, :]
    wide = np.minimum(x2, right) - np.maximum(x1, left)
    high = np.minimum(y2, bottom) - np.maximum(y1, top)
    shared = np.maximum(wide, 0) * np.maximum(high, 0)
    areas = np.maximum(x2 - x1, 0) * np.maximum(y2 - y1, 0)
    other_areas = np.maximum(right - left, 0) * np.maximum(bottom - top, 0)
    # Compared without dividing: two boxes without area overlap by nothing, not by 0 / 0.
    over: Array = shared > np.float32(iou) * (areas + other_areas - shared)
    return over
