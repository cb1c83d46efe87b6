"""mAP of detections on labelled objects, as COCO's evaluation computes it.

Tasks with other objects than boxes, e.g. masks, have their own ``measure`` and share ``score``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.average_precision import (
    THRESHOLDS,
    Ignored,
    box_overlaps,
    mean_of_classes,
    rank_by_class,
)
from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes, read_boxes
from edgekit.compiler.evaluate.label_metric import Group, LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.cascaded import Cascaded
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.label import label_of
from edgekit.tasks.detect.metric import VARIANT_SCORE_THRESHOLD
from edgekit.tensor_spec import Array

SIZES = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
"""Areas in pixels that COCO's evaluation calls so."""
SHOWN_THRESHOLDS = {"0.50": 0, "0.75": 5}
"""Intersection over union -> index of THRESHOLDS."""


class Objects(NamedTuple):
    """Objects of a photograph.

    Attributes:
        scores: float [n].
        classes: int64 [n].
        areas: Areas in pixels that decide the size: float64 [n].
    """

    scores: Array
    classes: Array
    areas: Array


class Measured(NamedTuple):
    """Labelled and detected objects of a photograph.

    Attributes:
        truth: Labelled objects.
        ignored: Whether they do not count: bool [objects].
        crowds: Whether they stand for many objects: bool [objects].
        detections: Detected objects.
        overlaps: How alike they are, 0 to 1: float64 [detections, objects].
    """

    truth: Objects
    ignored: Array
    crowds: Array
    detections: Objects
    overlaps: Array


def measure(truth: LabelledBoxes, prediction: Detections | Cascaded, card: Card) -> Measured:
    """Compare the labels with the detections; of a cascade with those of its first stage."""
    found = prediction.found if isinstance(prediction, Cascaded) else prediction
    boxes = truth.objects
    overlaps = box_overlaps(found, np.arange(len(found)), boxes, np.arange(len(boxes)))
    return measured(truth, found, _areas(found), overlaps, _areas(boxes))


def measured(truth: LabelledBoxes, found: Any, areas: Array, overlaps: Array, truth_areas: Array) -> Measured:
    """Return labelled and detected objects. In a crowd, the part of a detection that is in it counts, and not
    the intersection over union.

    Args:
        truth: Labelled objects.
        found: Detected objects, with ``scores`` and ``classes``.
        areas: Areas of the detected objects in pixels: float64 [detections].
        overlaps: Intersections over unions: float64 [detections, objects].
        truth_areas: Areas of the labelled objects, as the overlaps use them: float64 [objects].
    """
    if truth.crowds.any():
        shared = overlaps * (areas[:, None] + truth_areas[None]) / (1 + overlaps)
        overlaps = np.where(truth.crowds, shared / np.maximum(areas[:, None], 1e-9), overlaps)
    objects = Objects(truth.objects.scores, truth.objects.classes, truth.areas)
    return Measured(
        objects, truth.crowds, truth.crowds, Objects(found.scores, found.classes, areas), overlaps
    )


def _areas(objects: Detections) -> Array:
    sides = objects.boxes[:, 2:].astype(np.float64) - objects.boxes[:, :2]
    areas: Array = sides.prod(axis=1)
    return areas


def score(measures: Sequence[Measured], card: Card) -> Scores:
    """Compute the mAP over the thresholds .50 to .95, by class and by size."""
    ranked = _rank(measures, (0.0, np.inf))
    everything = np.ones(len(measures), np.int64)
    labels = card.task.labels if card.task is not None else ()
    classes = {
        label_of(labels, index): Group(
            float(one.average_precision(everything).mean()), int(one.present.sum())
        )
        for index, one in ranked.items()
        if one.present.any()
    }
    labelled = sum(group.labelled for group in classes.values())
    groups: dict[str, dict[str, Group]] = {"IoU": {}, "size": {}, "class": classes}
    for name, index in SHOWN_THRESHOLDS.items():
        groups["IoU"][name] = Group(mean_of_classes(ranked, everything, index) or 0.0, labelled)
    for name, area in SIZES.items():
        of_size = _rank(measures, area)
        value = mean_of_classes(of_size, everything)
        if value is not None:
            groups["size"][name] = Group(value, sum(int(one.present.sum()) for one in of_size.values()))
    least = getattr(card.task.options, "score", 0.25) if card.task is not None else 0.25
    faults = [_faults(one, least) for one in measures]
    errors = np.array([missed + false for missed, _, false in faults], np.float64)
    texts = [f"{missed} of {present} objects missed, {false} false" for missed, present, false in faults]
    return Scores(partial(mean_of_classes, ranked), errors, texts, labelled, groups=groups)


def _faults(one: Measured, least: float) -> tuple[int, int, int]:
    """Count the objects that are missed at the card's score, all objects, and false detections."""
    keep = one.detections.scores >= least
    sure = Objects(*(values[keep] for values in one.detections))
    ranked = _rank([one._replace(detections=sure, overlaps=one.overlaps[keep])], (0.0, np.inf)).values()
    right, present = sum(int(r.matched[0].sum()) for r in ranked), sum(int(r.present[0]) for r in ranked)
    others = sum(int(index not in one.truth.classes) for index in sure.classes)
    counted = sum(int(r.counted[0].sum()) for r in ranked)
    return present - right, present, counted - right + others


class _Truth(NamedTuple):
    """Labelled objects with their similarities to the detections."""

    scores: Array
    classes: Array
    overlaps: Array


def _rank(measures: Sequence[Measured], area: tuple[float, float]) -> Any:
    truth = [_Truth(one.truth.scores, one.truth.classes, one.overlaps) for one in measures]
    ignored = [
        Ignored(
            _outside(one.truth.areas, area) | one.ignored, one.crowds, _outside(one.detections.areas, area)
        )
        for one in measures
    ]
    return rank_by_class(truth, [one.detections for one in measures], _overlaps, ignored)


def _outside(areas: Array, area: tuple[float, float]) -> Array:
    outside: Array = (areas < area[0]) | (areas > area[1])
    return outside


def _overlaps(detections: Objects, indices: Array, truth: _Truth, truth_indices: Array) -> Array:
    return truth.overlaps[np.ix_(indices, truth_indices)]


ACCURACY = LabelMetric(
    "mAP", "objects", read_boxes, measure, score, options={"score": VARIANT_SCORE_THRESHOLD}
)
assert THRESHOLDS[SHOWN_THRESHOLDS["0.75"]] == 0.75
