"""Text: where it is by the F1 of regions, what it says by the rate of right characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.evaluate.task_metrics.task_metric import TaskMetric
from edgekit.processing.tasks.detect_text.prediction import TextRegions
from edgekit.processing.tasks.read_text.prediction import TextLine
from edgekit.tensor_spec import Array

SAME_REGION = 0.5
"""Intersection over union from which two regions are the same: ICDAR 2015's protocol, which uses polygons;
here it is that of their upright bounds."""


def region_f1(reference: Sequence[TextRegions], found: Sequence[TextRegions]) -> float | None:
    """F1 of a variant's regions with the float model's as ground truth; None where that finds none."""
    matched = expected = given = 0
    for theirs, ours in zip(reference, found, strict=True):
        expected, given = expected + len(theirs), given + len(ours)
        overlap = _overlaps(_bounds(theirs.corners), _bounds(ours.corners))
        while overlap.size and (best := overlap.max()) >= SAME_REGION:
            row, column = np.unravel_index(overlap.argmax(), overlap.shape)
            overlap[row], overlap[:, column] = 0, 0
            matched += bool(best)
    return 2 * matched / (expected + given) if expected else None


def character_accuracy(reference: Sequence[TextLine], found: Sequence[TextLine]) -> float | None:
    """1 - character error rate (edits over the float model's characters), at least 0; None where that
    reads nothing."""
    expected = sum(len(line.text) for line in reference)
    edits = sum(edit_distance(a.text, b.text) for a, b in zip(reference, found, strict=True))
    return max(0.0, 1 - edits / expected) if expected else None


def edit_distance(a: str, b: str) -> int:
    """Insertions, deletions and substitutions from one text to the other (Levenshtein, 1966).

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
    return row[-1]


def _bounds(corners: Array) -> Array:
    """x1, y1, x2, y2 of regions [n, 4, 2]: [n, 4]."""
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).reshape(-1, 4)


def _overlaps(a: Array, b: Array) -> Array:
    """Intersection over union of boxes [n, 4] and [m, 4]: [n, m]."""
    low, high = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (a, b)]
    overlaps: Array = shared / np.maximum(areas[0][:, None] + areas[1] - shared, 1e-9)
    return overlaps


REGION_F1 = TaskMetric("text F1", region_f1, drop=0.1)
CHARACTER_ACCURACY = TaskMetric("text 1 - CER", character_accuracy, drop=0.05)
