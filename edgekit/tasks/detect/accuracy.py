"""mAP of detections on labelled boxes, as COCO's evaluation computes it."""

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


class Measured(NamedTuple):
    """Labelled and detected objects of a photograph."""

    truth: LabelledBoxes
    detections: Detections


class _Truth(NamedTuple):
    """Objects with what COCO's intersection over union needs."""

    boxes: Array
    scores: Array
    classes: Array
    crowds: Array


def measure(truth: LabelledBoxes, prediction: Detections | Cascaded, card: Card) -> Measured:
    """Return the labels with the detections; of a cascade those of its first stage."""
    return Measured(truth, prediction.found if isinstance(prediction, Cascaded) else prediction)


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
    groups = {"class": classes}
    groups["IoU"] = {
        name: Group(mean_of_classes(ranked, everything, index) or 0.0, labelled)
        for name, index in SHOWN_THRESHOLDS.items()
    }
    groups["size"] = {}
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
    found = one.detections
    boxes = Detections(found.boxes[keep], found.scores[keep], found.classes[keep])
    ranked = _rank([Measured(one.truth, boxes)], (0.0, np.inf)).values()
    right, present = sum(int(r.matched[0].sum()) for r in ranked), sum(int(r.present[0]) for r in ranked)
    others = sum(int(index not in one.truth.objects.classes) for index in boxes.classes)
    counted = sum(int(r.counted[0].sum()) for r in ranked)
    return present - right, present, counted - right + others


def _rank(measures: Sequence[Measured], area: tuple[float, float]) -> Any:
    truth, ignored = [], []
    for labels, detections in measures:
        objects = labels.objects
        truth.append(_Truth(objects.boxes, objects.scores, objects.classes, labels.crowds))
        sides = detections.boxes[:, 2:].astype(np.float64) - detections.boxes[:, :2]
        out = _outside(labels.areas, area) | labels.crowds
        ignored.append(Ignored(out, labels.crowds, _outside(sides.prod(axis=1), area)))
    return rank_by_class(truth, [one.detections for one in measures], _overlaps, ignored)


def _outside(areas: Array, area: tuple[float, float]) -> Array:
    outside: Array = (areas < area[0]) | (areas > area[1])
    return outside


def _overlaps(detections: Detections, indices: Array, truth: Any, truth_indices: Array) -> Array:
    overlaps = box_overlaps(detections, indices, truth, truth_indices)
    crowds = truth.crowds[truth_indices]
    if crowds.any():
        sides = (detections.boxes[indices, 2:] - detections.boxes[indices, :2]).astype(np.float64)
        areas = sides.prod(axis=1)[:, None]
        boxes = truth.boxes[truth_indices].astype(np.float64)
        others = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[None]
        shared = overlaps * (areas + others) / (1 + overlaps)
        overlaps = np.where(crowds, shared / np.maximum(areas, 1e-9), overlaps)
    return overlaps


ACCURACY = LabelMetric(
    "mAP", "objects", read_boxes, measure, score, options={"score": VARIANT_SCORE_THRESHOLD}
)
assert THRESHOLDS[SHOWN_THRESHOLDS["0.75"]] == 0.75
