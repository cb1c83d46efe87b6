"""Mean average precision (mAP) of detections as in COCO.

For each class of the ground truth and each IoU threshold of .50, .55 ... .95, the detections of all pictures,
in order of score, are matched to the unmatched ground-truth box of their picture with the largest IoU;
precision is interpolated at 101 recalls. mAP is the mean over thresholds and classes: Lin et al., arXiv
1405.0312, and its evaluation code, with all areas, no crowds and 100 detections per class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
CONFIDENCE = 0.95
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
    ranked = rank_by_class(ground_truth, detections, similarity)
    return mean_of_classes(ranked, np.ones(len(ground_truth), np.int64))


def upper_average_precision(ground_truth: Sequence[ScoredBoxes], detections: Sequence[ScoredBoxes]) -> float:
    """Compute a one-sided 95 % upper bound of the mAP, 0 to 1: a bootstrap over pictures.

    Without any match every resample gives 0. The bound is then that of Clopper and Pearson for the recall at
    the lowest threshold, times the part of it that an mAP is.
    """
    ranked = rank_by_class(ground_truth, detections)
    if not any(one.matched.any() for one in ranked.values()):
        present = sum(int(one.present.sum()) for one in ranked.values())
        return MAP_OF_RECALL * upper_bound(0, present, CONFIDENCE)
    return float(np.quantile(_resampled(ranked, bootstrap(len(ground_truth))), CONFIDENCE))


def resample_average_precision(
    ground_truth: Sequence[ScoredBoxes],
    detections: Sequence[ScoredBoxes],
    weights: Array,
    similarity: Similarity = box_overlaps,
) -> Array:
    """Compute the mAP of resamples of the images: float64 [resamples].

    Args:
        ground_truth: Objects of each image, at least one in all.
        weights: How often each image counts: int64 [resamples, images].
    """
    return _resampled(rank_by_class(ground_truth, detections, similarity), weights)


def bootstrap(count: int) -> Array:
    """Return how often each sample counts in RESAMPLES bootstrap resamples: int64 [RESAMPLES, count].

    The same number of samples gives the same draws, so that two models can be compared by resample.
    """
    draws = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return np.stack([np.bincount(draw, minlength=count) for draw in draws])


def _resampled(ranked: Mapping[int, Ranked], weights: Array) -> Array:
    values = sum(one.average_precisions(weights) for one in ranked.values())
    classes = sum((weights @ one.present > 0).astype(int) for one in ranked.values())
    return np.asarray(values / np.maximum(classes, 1))


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


class Ignored(NamedTuple):
    """Objects and detections of one picture that do not count, as in COCO's evaluation.

    Attributes:
        objects: Objects whose detections are neither right nor wrong: bool [objects].
        crowds: Those of them that stand for many, and match any number of detections: bool [objects].
        detections: Detections that are not wrong if they match no object: bool [detections].
    """

    objects: Array
    crowds: Array
    detections: Array


class Ranked(NamedTuple):
    """Detections of one class in all pictures, in order of score.

    Attributes:
        pictures: Index of each detection's picture: int64 [detections].
        matched: Whether they match an object at each threshold: bool [thresholds, detections].
        counted: Whether they count at each threshold: bool [thresholds, detections]. A detection of an
            ignored object is neither right nor wrong.
        present: Number of objects of the class in each picture, without ignored ones: int64 [pictures].
    """

    pictures: Array
    matched: Array
    counted: Array
    present: Array

    def average_precision(self, weights: Array) -> Array:
        """Compute the average precision at each threshold: float64 [thresholds].

        Args:
            weights: How often each picture counts, as in a bootstrap: int64 [pictures].
        """
        drawn = weights[self.pictures]
        positives = np.cumsum(self.matched * drawn, axis=1)
        counts = np.cumsum(self.counted * drawn, axis=1)
        recall, precision = positives / (self.present @ weights), positives / np.maximum(counts, 1)
        best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        # One more column: precision is 0 at recalls that are never reached.
        best = np.pad(best, ((0, 0), (0, 1)))
        return np.array(
            [row[np.searchsorted(r, RECALLS)].mean() for r, row in zip(recall, best, strict=True)]
        )

    def average_precisions(self, weights: Array) -> Array:
        """Compute the mean over the thresholds for many weights at once; 0 without an object.

        Args:
            weights: int64 [resamples, pictures].

        Returns:
            float64 [resamples], as :meth:`average_precision` but for recalls that round differently.
        """
        present, drawn = np.maximum(weights @ self.present, 1)[:, None], weights[:, self.pictures]
        total = np.zeros(len(weights))
        for matched, counted in zip(self.matched, self.counted, strict=True):
            positives = np.cumsum(drawn * matched, axis=1)
            precision = positives / np.maximum(np.cumsum(drawn * counted, axis=1), 1)
            best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
            reached = np.floor(100 * positives / present + 1e-9) + 1  # recalls of RECALLS, 0 included
            total += (best * np.diff(reached, prepend=0, axis=1)).sum(axis=1)
        return total / len(RECALLS) / len(self.matched)


def mean_of_classes(
    ranked: Mapping[int, Ranked], weights: Array, threshold: int | None = None
) -> float | None:
    """Compute the mAP, 0 to 1, or the mean average precision at one threshold.

    Args:
        weights: How often each picture counts: int64 [pictures].
        threshold: Index of one of THRESHOLDS. None means their mean.

    Returns:
        None if no picture that counts has an object.
    """
    values = [one.average_precision(weights) for one in ranked.values() if one.present @ weights]
    if not values:
        return None
    return float(np.mean(values if threshold is None else [value[threshold] for value in values]))


def rank_by_class(
    ground_truth: Sequence[ScoredBoxes],
    detections: Sequence[ScoredBoxes],
    similarity: Similarity = box_overlaps,
    ignored: Sequence[Ignored] | None = None,
) -> dict[int, Ranked]:
    """Match the detections of all pictures, and sort them by score, for each class of the ground truth.

    Args:
        ignored: What is ignored in each picture. None means nothing.
    """
    pairs = list(zip(ground_truth, detections, strict=True))
    if ignored is None:
        ignored = [Ignored(*(np.zeros(len(p.scores), np.bool_) for p in (a, a, b))) for a, b in pairs]
    classes = sorted({int(c) for picture in ground_truth for c in _classes(picture)})
    matches = {index: [_NO_MATCHES] * len(pairs) for index in classes}
    for number, (pair, one) in enumerate(zip(pairs, ignored, strict=True)):
        for index in matches.keys() & {int(c) for boxes in pair for c in _classes(boxes)}:
            matches[index][number] = _matches_of(*pair, one, index, similarity)
    return {index: _ranked(rows) for index, rows in matches.items()}


class _Matches(NamedTuple):
    """Detections of one class in one picture, in order of score; the fields are those of ``Ranked``."""

    scores: Array
    matched: Array
    counted: Array
    present: int


_NONE = np.zeros((len(THRESHOLDS), 0), np.bool_)
_NO_MATCHES = _Matches(np.zeros(0, np.float32), _NONE, _NONE, 0)


def _ranked(matches: Sequence[_Matches]) -> Ranked:
    order = np.argsort(-np.concatenate([one.scores for one in matches]), kind="stable")
    pictures = np.repeat(np.arange(len(matches)), [len(one.scores) for one in matches])[order]
    matched, counted = (
        np.concatenate(arrays, axis=1)[:, order]
        for arrays in ([one.matched for one in matches], [one.counted for one in matches])
    )
    return Ranked(pictures, matched, counted, np.array([one.present for one in matches]))


def _matches_of(
    expected: ScoredBoxes, picture: ScoredBoxes, ignored: Ignored, index: int, similarity: Similarity
) -> _Matches:
    objects = np.flatnonzero(_classes(expected) == index)
    # As in COCO's code, an object is preferred to an ignored one.
    objects = objects[np.argsort(ignored.objects[objects], kind="stable")]
    indices = np.flatnonzero(_classes(picture) == index)
    indices = indices[np.argsort(-picture.scores[indices], kind="stable")][:MAX_DETECTIONS]
    present = int((~ignored.objects[objects]).sum())
    matched = skipped = np.zeros((len(THRESHOLDS), len(indices)), np.bool_)
    if len(objects) and len(indices):
        overlaps = similarity(picture, indices, expected, objects)
        matched, skipped = _match(overlaps, present, ignored.crowds[objects])
    counted = matched | ~(skipped | ignored.detections[indices])
    return _Matches(picture.scores[indices], matched, counted, present)


def _match(overlaps: Array, present: int, crowds: Array) -> tuple[Array, Array]:
    """Match detections, in order of score, to the boxes of the ground truth.

    Args:
        overlaps: Similarities: float64 [detections, objects].
        present: Number of objects that are not ignored, which come first.
        crowds: Whether an object can match again: bool [objects].

    Returns:
        Detections that match an object, and those that match an ignored one: bool [thresholds, detections].
    """
    matched, skipped = np.zeros((2, len(THRESHOLDS), len(overlaps)), np.bool_)
    free = np.ones((len(THRESHOLDS), overlaps.shape[1]), np.bool_)
    for index, row in enumerate(overlaps):
        for part, matches in ((slice(0, present), matched), (slice(present, None), skipped)):
            similar = row[part]
            if not similar.size or similar.max() < THRESHOLDS[0]:
                continue
            free_overlaps = np.where(free[:, part], similar, -1)
            # Of equal IoUs the last one, as in COCO's code.
            match = similar.size - 1 - free_overlaps[:, ::-1].argmax(axis=1)
            best = free_overlaps[np.arange(len(THRESHOLDS)), match]
            levels = np.flatnonzero((best >= THRESHOLDS) & ~matched[:, index])
            matches[levels, index] = True
            free[levels, match[levels] + (part.start or 0)] = False
            free[:, crowds] = True
    return matched, skipped


def _overlaps(a: Array, b: Array) -> Array:
    """Compute the intersection over union of all pairs of boxes: [len(a), len(b)]."""
    if not len(a) or not len(b):
        return np.zeros((len(a), len(b)))
    corner = np.maximum(a[:, None, :2], b[None, :, :2])
    intersection = np.maximum(np.minimum(a[:, None, 2:], b[None, :, 2:]) - corner, 0).prod(axis=2)
    union = (a[:, 2:] - a[:, :2]).prod(axis=1)[:, None] + (b[:, 2:] - b[:, :2]).prod(axis=1) - intersection
    detections: Array = np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0)
    return detections
