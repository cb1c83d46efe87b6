from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate.average_precision import (
    mean_average_precision,
    mean_change,
    upper_average_precision,
)
from edgekit.processing.predictions.detect import Detections


def detections(boxes: Any, scores: Any, classes: Any) -> Detections:
    return Detections(
        np.asarray(boxes, np.float32).reshape(-1, 4),
        np.asarray(scores, np.float32),
        np.asarray(classes, np.int64),
    )


def by_coco(truth: list[Detections], found: list[Detections]) -> float:
    """The same by COCO's own code."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def entries(pictures: list[Detections]) -> list[dict[str, Any]]:
        rows = []
        for image, picture in enumerate(pictures):
            for one in picture:
                x1, y1, x2, y2 = one.box
                size = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
                rows.append({**size, "image_id": image, "category_id": one.index, "score": one.score})
        return [{**row, "id": number, "iscrowd": 0} for number, row in enumerate(rows, 1)]

    coco = COCO()
    coco.dataset = {
        "images": [{"id": i, "width": 100, "height": 100} for i in range(len(truth))],
        "categories": [{"id": i, "name": str(i)} for i in range(5)],
        "annotations": entries(truth),
    }
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        run = COCOeval(coco, coco.loadRes(entries(found)), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[0])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rounded", [False, True])
def test_equals_cocos_own_code(seed: int, rounded: bool) -> None:
    pytest.importorskip("pycocotools")
    rng = np.random.default_rng(seed)
    truth, found = [], []
    for _ in range(8):
        count = int(rng.integers(0, 12))
        corner, size = rng.uniform(0, 60, (count, 2)), rng.uniform(4, 40, (count, 2))
        boxes = np.concatenate([corner, corner + size], axis=1)
        classes = rng.integers(0, 4, count)
        truth.append(detections(boxes, np.ones(count), classes))
        kept = rng.random(count) < 0.8
        near = boxes[kept] + rng.normal(0, 2, (int(kept.sum()), 4))
        lost = rng.uniform(0, 50, (6, 2))
        all_boxes = np.concatenate([near, near + 0.5, np.concatenate([lost, lost + 20], axis=1)])
        if rounded:  # equal overlaps and equal scores: ties are broken alike
            all_boxes = np.round(all_boxes / 8) * 8
        scores = np.round(rng.random(len(all_boxes)), 1 if rounded else 6)
        names = np.concatenate([classes[kept], classes[kept], rng.integers(0, 5, 6)])
        found.append(detections(all_boxes, scores, names))
    ours = mean_average_precision(truth, found)
    assert ours == pytest.approx(by_coco(truth, found), abs=1e-6)


def test_the_ends() -> None:
    box = detections([[0, 0, 10, 10]], [0.9], [1])
    nothing = detections([], [], [])
    assert mean_average_precision([box], [box]) == 1.0
    assert mean_average_precision([box], [nothing]) == 0.0
    assert mean_average_precision([box], [detections([[0, 0, 10, 10]], [0.9], [2])]) == 0.0
    assert mean_average_precision([nothing], [box]) is None


def test_a_box_of_half_the_size_counts_at_the_lowest_threshold_only() -> None:
    truth = detections([[0, 0, 10, 10]], [1], [0])
    assert mean_average_precision([truth], [detections([[0, 0, 10, 5.2]], [0.9], [0])]) == 0.1


def test_a_change_is_a_power_of_what_moved_or_lost_score() -> None:
    truth = detections([[0, 0, 10, 10], [50, 50, 60, 60]], [0.8, 0.5], [1, 2])
    assert mean_change([truth], [truth]) == 0
    # The first is as sure in another place (IoU .9), the second has half of its score: .1^2 and .5^2.
    moved = detections([[0, 0, 10, 9], [50, 50, 60, 60]], [0.9, 0.25], [1, 2])
    assert mean_change([truth], [moved]) == pytest.approx((0.01 + 0.25) / 2)
    lost = detections([[0, 0, 10, 10]], [0.8], [2])
    assert mean_change([truth], [lost]) == 1
    nothing = detections([], [], [])
    assert mean_change([truth, nothing], [nothing, nothing]) == 1
    assert mean_change([nothing], [truth]) == 0


def test_an_upper_bound_of_nothing_falls_with_the_number_of_objects() -> None:
    """Bootstraps of zeros are zero: the bound is that of the objects that could have been found."""
    nothing = detections([], [], [])
    for objects, is_low in ((30, False), (40, True)):
        truth = [detections([[0, 0, 9, 9]] * 5, [1] * 5, range(5)) for _ in range(objects // 5)]
        assert (upper_average_precision(truth, [nothing] * len(truth)) < 0.05) is is_low


def test_an_upper_bound_is_above_the_value_and_the_same_each_time() -> None:
    truth = [detections([[0, 0, 9, 9], [20, 20, 40, 40]], [1, 1], [0, 1]) for _ in range(8)]
    found = [
        detections([[0, 0, 9, 9]], [0.9], [0]) if number % 2 else detections([], [], [])
        for number in range(8)
    ]
    value, upper = mean_average_precision(truth, found), upper_average_precision(truth, found)
    assert value is not None
    assert value < upper < 0.5 == upper_average_precision(truth, [detections([[0, 0, 9, 9]], [1], [0])] * 8)
    assert upper == upper_average_precision(truth, found)
