"""Metrics of fidelity, by hand, against slow ways and COCO's code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.compiler.evaluate.task_metric import metric_of
from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.predictions.matting import Matte
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.read_text import TextLine
from edgekit.processing.predictions.segment import ClassMap
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.processing.predictions.voice_activity import VoiceActivity
from edgekit.tasks.detect_text.metric import region_f1
from edgekit.tasks.embed.metric import mean_cosine
from edgekit.tasks.landmarks.metric import landmark_accuracy
from edgekit.tasks.matting.metric import alpha_agreement
from edgekit.tasks.pose.metric import COCO_SIGMAS, keypoint_similarity
from edgekit.tasks.read_text.metric import character_accuracy, edit_distance
from edgekit.tasks.segment.metric import mean_iou
from edgekit.tasks.segment_instances.metric import mask_overlaps
from edgekit.tasks.voice_activity.metric import decision_agreement


def test_mean_cosine() -> None:
    a, b, opposite = (Embedding(np.array(v, np.float32)) for v in ([1, 0], [1, 1], [-1, 0]))
    assert mean_cosine([a, a], [a, b]) == pytest.approx((1 + 0.5**0.5) / 2)
    assert mean_cosine([a], [opposite]) == 0


def line(text: str) -> TextLine:
    return TextLine(text, 1.0, np.ones(len(text), np.float32), np.zeros(len(text), np.float32))


def test_character_accuracy_is_one_less_the_error_rate() -> None:
    assert character_accuracy(
        [line("price"), line("19.99")], [line("price"), line("19.98")]
    ) == pytest.approx(0.9)
    assert character_accuracy([line("ab")], [line("xyzxyz")]) == 0
    assert character_accuracy([line("ab")], [line("")]) == 0
    assert character_accuracy([line("")], [line("ab")]) is None


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "axc", 1), ("abcd", "bcde", 2)],
)
def test_edit_distance(a: str, b: str, edits: int) -> None:
    assert edit_distance(a, b) == edit_distance(b, a) == edits


def regions(*boxes: tuple[float, float, float, float]) -> TextRegions:
    corners = [[[x1, y1], [x2, y1], [x2, y2], [x1, y2]] for x1, y1, x2, y2 in boxes]
    return TextRegions(np.array(corners, np.float32).reshape(-1, 4, 2), np.ones(len(boxes), np.float32))


def test_regions_are_matched_once() -> None:
    one, other = (0.0, 0.0, 40.0, 10.0), (0.0, 50.0, 40.0, 60.0)
    assert region_f1([regions(one, other)], [regions(other, one)]) == 1
    assert region_f1([regions(one, other)], [regions(one)]) == pytest.approx(2 / 3)
    assert region_f1([regions(one)], [regions(one, one, other)]) == pytest.approx(2 / 4)
    assert region_f1([regions(one)], [regions((0, 0, 19, 10))]) == 0  # less than half of it
    assert region_f1([regions(one)], [regions((0, 0, 21, 10))]) == 1
    assert region_f1([regions(one)], [regions()]) == 0
    assert region_f1([regions()], [regions(one)]) is None


def classes(*rows: list[int]) -> ClassMap:
    return ClassMap(np.array(rows, np.uint8))


def test_mean_iou_is_over_classes_and_all_samples() -> None:
    reference = [classes([0, 0, 1, 1]), classes([0, 0, 0, 0])]
    assert mean_iou(reference, reference) == 1
    found = [classes([0, 0, 0, 1]), classes([0, 0, 0, 2])]
    # Class 0: 5 of 6 + 6 - 5 = 7 cells; class 1: 1 of 2. Class 2 is not in the reference.
    assert mean_iou(reference, found) == pytest.approx((5 / 7 + 1 / 2) / 2)


def test_a_few_pixels_of_a_class_do_not_decide() -> None:
    speck = np.zeros((50, 50), np.uint8)
    speck[0, 0] = 1  # .0004 of the pixels
    clean = ClassMap(np.zeros((50, 50), np.uint8))
    assert mean_iou([ClassMap(speck)], [clean]) > 0.999


def test_alpha_agreement() -> None:
    a, b = (Matte(np.full((2, 2), value, np.float32)) for value in (0.5, 0.75))
    assert alpha_agreement([a, a], [a, b]) == pytest.approx(1 - 0.125)


def hand(*points: tuple[float, float]) -> Keypoints:
    return Keypoints(np.array([points], np.float32), np.ones(1, np.float32))


NONE = Keypoints(np.zeros((0, 3, 2), np.float32), np.zeros(0, np.float32))


def test_landmarks_within_a_twentieth_of_the_extent() -> None:
    reference = hand((0, 0), (100, 0), (50, 40))
    assert landmark_accuracy([reference], [reference]) == 1
    moved = hand((4, 0), (100, 4.9), (50, 46))
    assert landmark_accuracy([reference], [moved]) == pytest.approx(2 / 3)
    assert landmark_accuracy([reference, NONE], [moved, NONE]) == pytest.approx(2 / 3)


def test_a_hand_that_only_one_finds_is_wrong() -> None:
    reference = hand((0, 0), (100, 0), (50, 40))
    assert landmark_accuracy([reference, reference], [reference, NONE]) == 0.5
    assert landmark_accuracy([NONE, reference], [reference, reference]) == 0.5
    assert landmark_accuracy([NONE], [NONE]) is None


def test_windows_on_the_same_side_of_the_threshold_agree() -> None:
    reference = [VoiceActivity(p) for p in (0.9, 0.6, 0.4, 0.1)]
    assert decision_agreement(reference, reference) == 1
    assert decision_agreement(reference, [VoiceActivity(p) for p in (0.5, 0.7, 0.5, 0.0)]) == 0.75
    assert decision_agreement(reference, [VoiceActivity(1 - each.probability) for each in reference]) == 0


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
