"""mAP on labels, against COCO's own code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes
from edgekit.processing.predictions.detect import Detections
from edgekit.tasks.detect import accuracy
from edgekit.tensor_spec import Array
from tests.fixtures.cards import BOXES
from tests.fixtures.coco_evaluation import by_coco_evaluation

CLASSES, PICTURES = 4, 40


def drawn_boxes(rng: np.random.Generator, count: int) -> Array:
    corners = rng.uniform(0, 400, (count, 2))
    sides = np.exp(rng.uniform(np.log(8), np.log(250), (count, 2)))
    return np.concatenate([corners, corners + sides], axis=1).astype(np.float32)


Pair = tuple[LabelledBoxes, Detections]


def measured(pairs: list[Pair]) -> list[accuracy.Measured]:
    return [accuracy.measure(*pair, BOXES) for pair in pairs]


def drawn(seed: int, digits: int = 1) -> list[Pair]:
    """Objects of all sizes, some of them crowds, and detections of most of them, with equal scores too."""
    rng, pairs = np.random.default_rng(seed), []
    for _ in range(PICTURES):
        objects, found = int(rng.integers(0, 14)), int(rng.integers(0, 30))
        truth, classes = drawn_boxes(rng, objects), rng.integers(0, CLASSES, objects)
        areas = (truth[:, 2:] - truth[:, :2]).astype(np.float64).prod(axis=1) * rng.uniform(0.3, 1, objects)
        boxes, numbers = drawn_boxes(rng, found), rng.integers(0, CLASSES + 1, found)
        for row in range(found if objects else 0):
            if rng.random() < 0.7:
                which = rng.integers(objects)
                boxes[row], numbers[row] = truth[which] + rng.uniform(-3, 3, 4), classes[which]
        scores = np.sort(rng.random(found).round(digits).astype(np.float32))[::-1]
        labels = Detections(truth, np.ones(objects, np.float32), classes)
        crowds = rng.random(objects) < 0.15
        pairs.append((LabelledBoxes(labels, areas, crowds), Detections(boxes, scores, numbers)))
    return pairs


def by_coco(pairs: list[Pair]) -> list[float]:
    """mAP, at .50 and .75, of small, medium and large objects."""
    annotations: list[dict[str, Any]] = []
    results = []
    for image_id, (truth, found) in enumerate(pairs, 1):
        for row, (box, index) in enumerate(zip(truth.objects.boxes, truth.objects.classes, strict=True)):
            annotations.append({
                **_entry(image_id, box, index), "id": len(annotations) + 1, "area": truth.areas[row],
                "iscrowd": int(truth.crowds[row]),
            })  # fmt: skip
        for box, index, score in zip(found.boxes, found.classes, found.scores, strict=True):
            results.append({**_entry(image_id, box, index), "score": float(score)})
    return by_coco_evaluation(annotations, results, "bbox")[:6]


def _entry(image_id: int, box: Array, index: int) -> dict[str, Any]:
    x1, y1, x2, y2 = (float(value) for value in box)
    return {"image_id": image_id, "category_id": int(index), "bbox": [x1, y1, x2 - x1, y2 - y1]}


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_coco(seed: int) -> None:
    pairs = drawn(seed)
    scores = accuracy.score(measured(pairs), BOXES)
    levels, sizes = scores.groups["IoU"], scores.groups["size"]
    ours = [scores.value(np.ones(PICTURES, np.int64)), levels["0.50"].value, levels["0.75"].value]
    ours += [sizes[size].value for size in ("small", "medium", "large")]
    assert ours == pytest.approx(by_coco(pairs), abs=1e-9)
    assert sum(group.labelled for group in sizes.values()) == scores.labelled


def test_weights_repeat_photographs() -> None:
    measures = measured(drawn(5, digits=6))
    weights = np.random.default_rng(0).integers(0, 3, PICTURES)
    repeated = [one for one, weight in zip(measures, weights, strict=True) for _ in range(weight)]
    whole = accuracy.score(repeated, BOXES).value(np.ones(len(repeated), np.int64))
    assert accuracy.score(measures, BOXES).value(weights) == pytest.approx(whole)


def test_faults_count_what_is_missed_and_false() -> None:
    boxes = np.array([[0, 0, 10, 10], [20, 20, 40, 40]], np.float32)
    truth = Detections(boxes, np.ones(2, np.float32), np.array([1, 1]))
    found = Detections(boxes[:1], np.ones(1, np.float32), np.array([1]))
    false = Detections(boxes, np.array([1, 0.001], np.float32), np.array([2, 2]))
    labels = LabelledBoxes(truth, np.array([100.0, 400.0]), np.zeros(2, np.bool_))
    scores = accuracy.score(measured([(labels, found), (labels, false)]), BOXES)
    assert list(scores.faults) == ["1 of 2 objects missed, 0 false", "2 of 2 objects missed, 1 false"]
    assert scores.errors.tolist() == [1, 3]
