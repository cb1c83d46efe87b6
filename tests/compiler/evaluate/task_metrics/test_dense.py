"""Fidelity of masks and mattes."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.evaluate.task_metrics.dense import alpha_agreement, mean_iou
from edgekit.processing.tasks.matting.prediction import Matte
from edgekit.processing.tasks.segment.prediction import ClassMap


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
