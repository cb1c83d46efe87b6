"""Mean average precision of detections, as COCO counts it.

For each class that the truth has and each IoU threshold of .50, .55 ... .95, detections of all pictures, best
score first, are matched in each picture to the truth that they overlap most and that is still free; precision
at 101 recalls, each the best that any greater recall has. The mean over thresholds and classes is the mAP:
Lin et al., arXiv 1405.0312, and its evaluation code, with all areas, no crowds and 100 detections a class.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.cards.predictions import Detections
from edgekit.tensors import Array

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST_PER_PICTURE = 100
"""Detections of one class that count in one picture."""


def mean_average_precision(truth: Sequence[Detections], found: Sequence[Detections]) -> float | None:
    """mAP of what was found against the truth, picture by picture.

    Args:
        truth: What there is; scores do not matter.
        found: What was found; boxes in the same pixels.

    Returns:
        0 to 1; None where the truth is empty.
    """
    classes = sorted({int(c) for picture in truth for c in picture.classes})
    if not classes:
        return None
    return float(np.mean([_of_class(truth, found, each) for each in classes]))


def _of_class(truth: Sequence[Detections], found: Sequence[Detections], index: int) -> float:
    """The mean over the thresholds for one class."""
    scores, hits, present = [], [], 0
    for there, picture in zip(truth, found, strict=True):
        own = there.boxes[there.classes == index].astype(np.float64)
        mine = np.flatnonzero(picture.classes == index)
        mine = mine[np.argsort(-picture.scores[mine], kind="stable")][:MOST_PER_PICTURE]
        present += len(own)
        scores.append(picture.scores[mine])
        hits.append(_matched(_overlaps(picture.boxes[mine].astype(np.float64), own)))
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right = np.concatenate(hits, axis=1)[:, order]
    positives, seen = np.cumsum(right, axis=1), np.arange(1, right.shape[1] + 1)
    recall, precision = positives / present, positives / seen
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    # One column more: a recall that is never reached has a precision of 0.
    best = np.pad(best, ((0, 0), (0, 1)))
    return float(np.mean([row[np.searchsorted(r, RECALLS)] for r, row in zip(recall, best, strict=True)]))


def _matched(overlaps: Array) -> Array:
    """Which detections, best first, find a truth of their own: bool [thresholds, detections]."""
    hits = np.zeros((len(THRESHOLDS), len(overlaps)), np.bool_)
    free = np.ones((len(THRESHOLDS), overlaps.shape[1]), np.bool_)
    for place, row in enumerate(overlaps):
        if not row.size or row.max() < THRESHOLDS[0]:
            continue
        for level, threshold in enumerate(THRESHOLDS):
            open_ = np.where(free[level], row, -1)
            # Of equal overlaps the last one, as COCO's code has it.
            match = len(open_) - 1 - int(open_[::-1].argmax())
            if open_[match] >= threshold:
                hits[level, place] = True
                free[level, match] = False
    return hits


def _overlaps(a: Array, b: Array) -> Array:
    """Intersection over union of each two boxes: [len(a), len(b)]."""
    if not len(a) or not len(b):
        return np.zeros((len(a), len(b)))
    corner = np.maximum(a[:, None, :2], b[None, :, :2])
    shared = np.maximum(np.minimum(a[:, None, 2:], b[None, :, 2:]) - corner, 0).prod(axis=2)
    union = (a[:, 2:] - a[:, :2]).prod(axis=1)[:, None] + (b[:, 2:] - b[:, :2]).prod(axis=1) - shared
    found: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found
