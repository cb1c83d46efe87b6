"""Metrics of fidelity: embeddings, text, masks, mattes, landmarks and voice."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.predictions.matting import Matte
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.read_text import TextLine
from edgekit.processing.predictions.segment import ClassMap
from edgekit.processing.predictions.voice_activity import VoiceActivity
from edgekit.tasks.detect_text.metric import region_f1
from edgekit.tasks.embed.metric import mean_cosine
from edgekit.tasks.landmarks.metric import landmark_accuracy
from edgekit.tasks.matting.metric import alpha_agreement
from edgekit.tasks.read_text.metric import character_accuracy, edit_distance
from edgekit.tasks.segment.metric import mean_iou
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
