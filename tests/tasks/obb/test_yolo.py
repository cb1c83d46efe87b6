"""YOLO-obb outputs made by hand, and which oriented boxes stay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.end2end import End2EndOptions
from edgekit.tasks.detect.yolov8 import YoloOptions
from edgekit.tasks.obb.yolo import obb_end2end, obb_yolov8, probabilistic_iou, suppress_oriented

HALF = ImagePlacement(128, 64, 64, 32, 0.5, 0.5)  # the frame has twice the input's size
QUARTER = math.pi / 2


def test_yolov8_obb() -> None:
    output = np.zeros((1, 4 + 2 + 1, 40), np.float32)
    output[0, :, 3] = [20, 10, 8, 4, 0.1, 0.8, QUARTER]
    output[0, :, 4] = [20, 10, 4, 8, 0.1, 0.7, 0]  # the same rectangle: it goes
    output[0, :, 5] = [20, 10, 8, 4, 0.1, 0.6, 0]  # across: it stays
    found = obb_yolov8({"predictions": output}, YoloOptions(), HALF, ["ship", "plane"])
    expected = np.array([[40, 20, 16, 8, QUARTER], [40, 20, 16, 8, 0]])
    np.testing.assert_allclose(found.boxes, expected, atol=1e-5)
    assert found[0].label == "plane"
    assert found[0].score == pytest.approx(0.8)
    np.testing.assert_allclose(found.corners[0], [[44, 12], [44, 28], [36, 28], [36, 12]], atol=1e-4)


def test_end2end_obb() -> None:
    rows = np.zeros((1, 300, 7), np.float32)
    rows[0, 2] = [20, 10, 8, 4, 0.9, 3, 0.5]
    found = obb_end2end({"predictions": rows}, End2EndOptions(), HALF)
    np.testing.assert_allclose(found.boxes, [[40, 20, 16, 8, 0.5]], rtol=1e-6)
    assert found.classes.tolist() == [3]


def test_a_stretched_frame_turns_boxes() -> None:
    """Twice as wide: a square on its corner becomes a flat rhombus, whose sides keep their lengths."""
    placed = ImagePlacement(128, 32, 64, 32, 0.5, 1)
    rows = np.zeros((1, 1, 7), np.float32)
    rows[0, 0] = [20, 10, math.sqrt(2), math.sqrt(2), 0.9, 0, math.pi / 4]  # its width is (1, 1)
    found = obb_end2end({"predictions": rows}, End2EndOptions(), placed)
    side = math.hypot(2, 1)
    np.testing.assert_allclose(found.boxes, [[40, 10, side, side, math.atan2(1, 2)]], rtol=1e-5)


def test_a_letterboxed_frame_keeps_angles() -> None:
    """425 rows become 212: scaled by 0.4988 and not by 0.5 as the columns, which turns no box."""
    placed = ImagePlacement(640, 425, 320, 320, 0.5, 212 / 425, 0, 54)
    rows = np.array([[[20, 64, 8, 4, 0.9, 0, 0.75]]], np.float32)
    found = obb_end2end({"predictions": rows}, End2EndOptions(), placed)
    np.testing.assert_allclose(found.boxes, [[40, 10 * 425 / 212, 16, 4 * 425 / 212, 0.75]], rtol=1e-6)


def test_normalized_positions() -> None:
    rows = np.array([[[0.25, 0.5, 0.125, 0.25, 0.9, 0, 0.5]]], np.float32)
    found = obb_end2end({"predictions": rows}, End2EndOptions(normalized=True), HALF)
    np.testing.assert_allclose(found.boxes, [[32, 32, 16, 16, 0.5]])
    planes = np.zeros((1, 6, 40), np.float32)
    planes[0, :, 3] = [0.25, 0.5, 0.125, 0.25, 0.9, 0.5]
    found = obb_yolov8({"predictions": planes}, YoloOptions(normalized=True), HALF)
    np.testing.assert_allclose(found.boxes, [[32, 32, 16, 16, 0.5]])


Array = npt.NDArray[Any]


def by_matrices(one: Array, other: Array) -> float:
    """arXiv 2106.06072 in float64: Bhattacharyya and Hellinger distance of Gaussians."""

    def gaussian(box: Array) -> tuple[Array, Array]:
        x, y, width, height, angle = box.astype(np.float64)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return np.array([x, y]), turn @ np.diag([width**2 / 12, height**2 / 12]) @ turn.T

    (mean, cov), (other_mean, other_cov) = gaussian(one), gaussian(other)
    middle = (cov + other_cov) / 2
    apart = (mean - other_mean) @ np.linalg.inv(middle) @ (mean - other_mean) / 8
    unlike = np.log(np.linalg.det(middle) / np.sqrt(np.linalg.det(cov) * np.linalg.det(other_cov))) / 2
    return float(1 - np.sqrt(1 - np.exp(-(apart + unlike))))


def boxes(count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    places, sizes = rng.uniform(0, 60, (count, 2)), rng.uniform(5, 40, (count, 2))
    return np.concatenate([places, sizes, rng.uniform(-4, 4, (count, 1))], axis=1).astype(np.float32)


def test_is_the_papers() -> None:
    ones, others = boxes(20, 0), boxes(30, 1)
    expected = [[by_matrices(one, other) for other in others] for one in ones]
    np.testing.assert_allclose(probabilistic_iou(ones, others), expected, atol=2e-4)


def test_boxes_without_area_are_finite() -> None:
    flat = np.zeros((3, 5), np.float32)
    flat[1, 2] = 10
    assert np.isfinite(probabilistic_iou(flat, flat)).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_box_goes_when_any_better_one_of_its_class_covers_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given, scores, classes = boxes(40, seed), rng.permutation(40).astype(np.float32), rng.integers(0, 2, 40)
    kept = suppress_oriented(given, scores, classes, 0.3, 100)
    expected = [
        i
        for i in np.argsort(-scores)
        if not any(
            scores[j] > scores[i] and classes[j] == classes[i] and by_matrices(given[i], given[j]) > 0.3
            for j in range(40)
        )
    ]
    assert kept.tolist() == expected
    assert len(kept) < 40
    assert suppress_oriented(given, scores, classes, 0.3, 3).tolist() == expected[:3]


@pytest.mark.parametrize("count", [0, 1])
def test_few_boxes(count: int) -> None:
    kept = suppress_oriented(boxes(count, 0), np.ones(count, np.float32), np.zeros(count, np.int64), 0.5, 10)
    assert kept.tolist() == list(range(count))
