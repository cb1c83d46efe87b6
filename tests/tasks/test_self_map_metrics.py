"""Fidelity of masks, keypoints and oriented boxes: how alike two are, against slow ways and COCO's code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.compiler.evaluate.task_metric import metric_of
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.tasks.pose.metric import COCO_SIGMAS, keypoint_similarity
from edgekit.tasks.segment_instances.metric import mask_overlaps

Array = npt.NDArray[Any]


def masks(seed: int, count: int = 5) -> Instances:
    rng = np.random.default_rng(seed)
    corners, sizes = rng.integers(0, 20, (count, 2)), rng.integers(3, 12, (count, 2))
    crops = [rng.random((int(h), int(w))) < 0.7 for w, h in sizes]
    boxes = np.concatenate([corners, corners + sizes], axis=1).astype(np.float32)
    scores = np.linspace(0.9, 0.5, count, dtype=np.float32)
    return Instances(boxes, scores, np.zeros(count, np.int64), crops, corners, 32, 32)


def people(seed: int, count: int = 4, points: int = 17) -> Keypoints:
    rng = np.random.default_rng(seed)
    boxes = np.array([[0, 0, 60, 90], [40, 10, 90, 95], [10, 10, 30, 40], [0, 50, 90, 90]], np.float32)[
        :count
    ]
    places = rng.uniform(0, 1, (count, points, 2)) * (boxes[:, None, 2:] - boxes[:, None, :2])
    places += boxes[:, None, :2]
    scores = np.linspace(0.9, 0.5, count, dtype=np.float32)
    seen = rng.uniform(0, 1, (count, points)).astype(np.float32)
    return Keypoints(places.astype(np.float32), scores, None, (), boxes, seen)


def oriented(seed: int) -> OrientedDetections:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(5, 50, (4, 5)).astype(np.float32)
    return OrientedDetections(boxes, np.linspace(0.9, 0.5, 4, dtype=np.float32), np.zeros(4, np.int64))


def test_masks_overlap_as_whole_frames_do() -> None:
    one, other = masks(0), masks(1)
    everything = np.arange(5)
    expected = [
        [(one.mask(i) & other.mask(j)).sum() / (one.mask(i) | other.mask(j)).sum() for j in range(5)]
        for i in range(5)
    ]
    np.testing.assert_allclose(mask_overlaps(one, everything, other, everything), expected)
    assert np.count_nonzero(expected) > 5
    assert mask_overlaps(one, everything[:2], other, everything[:0]).shape == (2, 0)


def test_keypoints_are_alike_as_coco_says() -> None:
    one, other = people(0), people(1)
    assert other.point_scores is not None
    assert other.boxes is not None
    expected = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            area = float(np.prod(other.boxes[j, 2:] - other.boxes[j, :2]))
            terms = [
                np.exp(
                    -float(((one.points[i, k] - other.points[j, k]) ** 2).sum()) / (2 * sigma) ** 2 / area / 2
                )
                for k, sigma in enumerate(COCO_SIGMAS)
                if other.point_scores[j, k] >= 0.5
            ]
            expected[i, j] = np.mean(terms)
    everything = np.arange(4)
    found = keypoint_similarity(one, everything, other, everything)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)
    assert keypoint_similarity(one, everything, other, everything[:0]).shape == (4, 0)


@pytest.mark.parametrize("points", [17, 21])
def test_without_boxes_and_scores_all_keypoints_and_their_extent_count(points: int) -> None:
    one = people(0, points=points)
    bare = Keypoints(one.points, one.scores)
    found = keypoint_similarity(bare, np.arange(4), bare, np.arange(4))
    np.testing.assert_allclose(np.diag(found), 1)
    moved = Keypoints(one.points + np.float32(3), one.scores)
    assert 0.1 < float(np.diag(keypoint_similarity(moved, np.arange(4), bare, np.arange(4))).min()) < 0.999


@pytest.mark.parametrize(
    ("kind", "make"), [("segment-instances", masks), ("pose", people), ("obb", oriented)]
)
def test_the_same_is_1_and_another_is_less(kind: str, make: Any) -> None:
    metric = metric_of(kind)
    assert metric is not None
    assert metric.compare([make(0), make(1)], [make(0), make(1)]) == pytest.approx(1)
    other = metric.compare([make(0), make(1)], [make(2), make(3)])
    assert other is not None
    assert other < 0.5
    nothing = make(0)
    empty = type(nothing)(*(getattr(nothing, name)[:0] for name in _arrays(nothing)), *_rest(nothing))
    assert metric.compare([empty], [nothing]) is None
    assert metric.compare([nothing], [empty]) == 0


def _arrays(found: Any) -> tuple[str, ...]:
    return {
        "Instances": ("boxes", "scores", "classes", "crops", "corners"),
        "Keypoints": ("points", "scores"),
        "OrientedDetections": ("boxes", "scores", "classes"),
    }[type(found).__name__]


def _rest(found: Any) -> tuple[int, ...]:
    return (found.width, found.height) if isinstance(found, Instances) else ()
