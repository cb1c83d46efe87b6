"""Fidelity of landmarks."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.pose import Keypoints
from edgekit.tasks.landmarks.metric import landmark_accuracy


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
