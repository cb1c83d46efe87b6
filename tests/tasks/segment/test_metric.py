"""Fidelity of class maps."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.segment import ClassMap
from edgekit.tasks.segment.metric import mean_iou


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
