"""Mean average precision (mAP) of detections as in COCO.

For each class of the ground truth and each IoU threshold of .50, .55 ... .95, the detections of all pictures,
in order of score, are matched to the unmatched ground-truth box of their picture with the largest IoU;
precision is interpolated at 101 recalls. mAP is the mean over thresholds and classes: Lin et al., arXiv
1405.0312, and its evaluation code, with all areas, no crowds and 100 detections per class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from edgekit.processing.predictions.detect import Detections
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.tensor_spec import Array

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MAX_DETECTIONS = 100
"""Most detections per class and picture."""
MAP_OF_RECALL = 0.6
"""An mAP, the mean over the thresholds, relative to the recall at the lowest: .58 to .6 for YOLOX-nano."""
RESAMPLES = 200
"""Resamples of a bootstrap: its 95 % quantile moves by about a tenth of the interval."""


class ScoredBoxes(Protocol):
    """Protocol of predictions in a picture, such as boxes."""

    @property
    def scores(self) -> Array: ...

    @property
    def classes(self) -> Array | None: ...


Similarity = Callable[[Any, Array, Any, Array], Array]
"""(Things found, indices of n of them, ground truth, indices of m of it) -> how alike, 0 to 1: [n, m]."""


def box_overlaps(detections: Detections, indices: Array, truth: Detections, truth_indices: Array) -> Array:
    """Compute the intersection over union of boxes: float64 [n, m]."""
    return _overlaps(
        detections.boxes[indices].astype(np.float64), truth.boxes[truth_indices].astype(np.float64)
    )


def mean_average_precision(
    ground_truth: Sequence[ScoredBoxes],
    detections: Sequence[ScoredBoxes],
    similarity: Similarity = box_overlaps,
) -> float | None:
    """Compute the mAP of detections against ground truth.

    Args:
        ground_truth: Objects of each picture; scores are ignored.
        detections: Detections of each picture, in the same pixels.
        similarity: Similarity of two objects; for boxes, their intersection over union.

    Returns:
        0 to 1; None if the ground truth is empty.
    """
    by_class = _matches_by_class(ground_truth, detections, similarity)
    return float(np.mean([_average_precision(pictures) for pictures in by_class])) if by_class else None


def upper_average_precision(
    ground_truth: Sequence[ScoredBoxes], detections: Sequence[ScoredBoxes], confidence: float = 0.95
) -> float:
    """Compute an upper bound of the mAP, 0 to 1: a bootstrap over pictures.

    Without any match every resample gives 0. The bound is then that of Clopper and Pearson for the recall at
    the lowest threshold, times the part of it that an mAP is.

    Args:
        ground_truth: Objects of each picture.
        detections: Detections of each picture.
        confidence: One-sided confidence, 0 to 1.
    """
    by_class = _matches_by_class(ground_truth, detections, box_overlaps)
    if not any(picture.matches.any() for pictures in by_class for picture in pictures):
        present = sum(picture.present for pictures in by_class for picture in pictures)
        return MAP_OF_RECALL * upper_bound(0, present, confidence)
    return float(np.quantile(_resampled(by_class, len(ground_truth)), confidence))


def resample_average_precision(
    ground_truth: Sequence[ScoredBoxes],
    detections: Sequence[ScoredBoxes],
    similarity: Similarity = box_overlaps,
) -> Array:
    """Compute the mAP of RESAMPLES bootstrap resamples of the pictures: float64 [RESAMPLES].

    The same number of pictures gives the same draws, so that two models can be compared by resample.

    Args:
        ground_truth: Objects of each picture, at least one in all.
        detections: Detections of each picture.
        similarity: Similarity of two objects.
    """
    return _resampled(_matches_by_class(ground_truth, detections, similarity), len(ground_truth))


def _resampled(by_class: Sequence[Sequence[_Matches]], count: int) -> Array:
    generator = np.random.default_rng(0)
    draws = generator.integers(count, size=(RESAMPLES, count))
    weights = np.stack([np.bincount(draw, minlength=count) for draw in draws])
    total, classes = np.zeros((2, RESAMPLES))
    for pictures in by_class:
        present = weights @ np.array([picture.present for picture in pictures])
        total += np.where(present, _weighted_precisions(pictures, weights, np.maximum(present, 1)), 0)
        classes += present > 0
    return total / np.maximum(classes, 1)


def _weighted_precisions(pictures: Sequence[_Matches], weights: Array, present: Array) -> Array:
    """Compute the average precision of one class with each picture taken ``weights`` [resamples, pictures]
    times: [resamples]."""
    scores = np.concatenate([picture.scores for picture in pictures])
    order = np.argsort(-scores, kind="stable")
    picture_of = np.repeat(np.arange(len(pictures)), [len(picture.scores) for picture in pictures])[order]
    matched = np.concatenate([picture.matches for picture in pictures], axis=1)[:, order]
    drawn = weights[:, picture_of]
    counts = np.maximum(np.cumsum(drawn, axis=1), 1)
    total = np.zeros(len(weights))
    for row in matched:
        positives = np.cumsum(drawn * row, axis=1)
        best = np.maximum.accumulate((positives / counts)[:, ::-1], axis=1)[:, ::-1]
        reached = np.floor(100 * positives / present[:, None] + 1e-9) + 1  # recalls of RECALLS, 0 included
        total += (best * np.diff(reached, prepend=0, axis=1)).sum(axis=1)
    return total / len(RECALLS) / len(THRESHOLDS)


def mean_change(
    ground_truth: Sequence[ScoredBoxes],
    detections: Sequence[ScoredBoxes],
    similarity: Similarity = box_overlaps,
) -> float:
    """Compute how much objects moved or lost score: the mean of (1 - s)^2 over the ground truth, 0 to 1.

    s is the similarity of the most similar detection of the same class, times its score over that of the
    ground truth if it is lower. Small errors of a network's outputs add up as powers, as noise does. The
    measure resolves changes that are far too small for an mAP.
    """
    changes = []
    for expected, picture in zip(ground_truth, detections, strict=True):
        expected_indices, indices = np.arange(len(expected.scores)), np.arange(len(picture.scores))
        alike = np.zeros((len(indices), len(expected_indices)))
        if len(indices) and len(expected_indices):
            alike = similarity(picture, indices, expected, expected_indices)
            alike = alike * np.minimum(picture.scores[:, None] / expected.scores[None], 1)
            alike[_classes(picture)[:, None] != _classes(expected)[None]] = 0
        changes.append((1 - alike.max(axis=0, initial=0)) ** 2)
    values = np.concatenate(changes) if changes else np.zeros(0)
    return float(values.mean()) if len(values) else 0.0


def _classes(picture: ScoredBoxes) -> Array:
    """Return class numbers; all are 0 if there is one class."""
    return picture.classes if picture.classes is not None else np.zeros(len(picture.scores), np.int64)


class _Matches(NamedTuple):
    """Detections of one class in one picture, in order of score.

    Attributes:
        scores: Their scores.
        matches: Whether they match at each threshold: bool [thresholds, detections].
        present: Number of objects of the class.
    """

    scores: Array
    matches: Array
    present: int


def _matches_by_class(
    ground_truth: Sequence[ScoredBoxes], detections: Sequence[ScoredBoxes], similarity: Similarity
) -> list[list[_Matches]]:
    """Match the detections of all pictures, for each class of the ground truth."""
    classes = sorted({int(c) for picture in ground_truth for c in _classes(picture)})
    pairs = list(zip(ground_truth, detections, strict=True))
    return [[_matches_of(*pair, index, similarity) for pair in pairs] for index in classes]


def _matches_of(expected: ScoredBoxes, picture: ScoredBoxes, index: int, similarity: Similarity) -> _Matches:
    expected_indices = np.flatnonzero(_classes(expected) == index)
    indices = np.flatnonzero(_classes(picture) == index)
    indices = indices[np.argsort(-picture.scores[indices], kind="stable")][:MAX_DETECTIONS]
    if not len(expected_indices) or not len(indices):
        matches = np.zeros((len(THRESHOLDS), len(indices)), np.bool_)
    else:
        matches = _match(similarity(picture, indices, expected, expected_indices))
    return _Matches(picture.scores[indices], matches, len(expected_indices))


def _average_precision(pictures: Sequence[_Matches]) -> float:
    """Compute the average precision of one class, mean over the thresholds."""
    order = np.argsort(-np.concatenate([picture.scores for picture in pictures]), kind="stable")
    matched = np.concatenate([picture.matches for picture in pictures], axis=1)[:, order]
    positives, counts = np.cumsum(matched, axis=1), np.arange(1, matched.shape[1] + 1)
    recall, precision = positives / sum(picture.present for picture in pictures), positives / counts
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    # One more column: precision is 0 at recalls that are never reached.
    best = np.pad(best, ((0, 0), (0, 1)))
    return float(np.mean([row[np.searchsorted(r, RECALLS)] for r, row in zip(recall, best, strict=True)]))


def _match(overlaps: Array) -> Array:
    """Match detections, in order of score, to ground-truth boxes: bool [thresholds, detections]."""
    matches = np.zeros((len(THRESHOLDS), len(overlaps)), np.bool_)
    free = np.ones((len(THRESHOLDS), overlaps.shape[1]), np.bool_)
    levels = np.arange(len(THRESHOLDS))
    for index, row in enumerate(overlaps):
        if not row.size or row.max() < THRESHOLDS[0]:
            continue
        free_overlaps = np.where(free, row, -1)
        # Of equal IoUs the last one, as in COCO's code.
        match = row.size - 1 - free_overlaps[:, ::-1].argmax(axis=1)
        matched = np.flatnonzero(free_overlaps[levels, match] >= THRESHOLDS)
        matches[matched, index] = True
        free[matched, match[matched]] = False
    return matches


def _overlaps(a: Array, b: Array) -> Array:
    """Compute the intersection over union of all pairs of boxes: [len(a), len(b)]."""
    if not len(a) or not len(b):
        return np.zeros((len(a), len(b)))
    corner = np.maximum(a[:, None, :2], b[None, :, :2])
    intersection = np.maximum(np.minimum(a[:, None, 2:], b[None, :, 2:]) - corner, 0).prod(axis=2)
    union = (a[:, 2:] - a[:, :2]).prod(axis=1)[:, None] + (b[:, 2:] - b[:, :2]).prod(axis=1) - intersection
    detections: Array = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return detections
