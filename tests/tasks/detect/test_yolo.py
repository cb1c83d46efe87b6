"""YOLO outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.yolov5 import detect_yolov5
from edgekit.tasks.detect.yolov8 import YoloOptions, detect_yolov8
from edgekit.tasks.detect.yolox import YoloxOptions, detect_yolox

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def yolov8_output(*boxes: list[float], count: int = 42, classes: int = 3) -> Array:
    """[1, 4 + classes, count]; the boxes are the last columns."""
    output = np.zeros((1, 4 + classes, count), np.float32)
    for column, box in enumerate(reversed(boxes)):
        output[0, :, count - 1 - column] = box
    return output


def test_yolov8_box_class_and_score() -> None:
    output = yolov8_output([20, 10, 8, 4, 0.1, 0.2, 0.8], [40, 16, 10, 20, 0.9, 0.2, 0.3])
    found = detect_yolov8({"predictions": output}, YoloOptions(), WHOLE, ["a", "b", "c"])
    np.testing.assert_allclose(found.boxes, [[35, 6, 45, 26], [16, 8, 24, 12]], atol=1e-5)
    np.testing.assert_allclose(found.scores, [0.9, 0.8])
    assert [one.label for one in found] == ["a", "c"]


def test_yolov8_of_overlapping_boxes_of_a_class_the_best_stays() -> None:
    same = [20, 10, 10, 10, 0.5, 0, 0], [21, 10, 10, 10, 0.6, 0, 0], [20, 10, 10, 10, 0, 0.55, 0]
    found = detect_yolov8({"predictions": yolov8_output(*same)}, YoloOptions(iou=0.7), WHOLE)
    assert found.scores.tolist() == pytest.approx([0.6, 0.55])
    assert found.classes.tolist() == [0, 1]
    both = detect_yolov8({"predictions": yolov8_output(*same)}, YoloOptions(iou=0.82), WHOLE)
    assert len(both) == 3  # 9 of 11 columns are shared: 0.818


def test_yolov8_score_is_a_least_one() -> None:
    output = yolov8_output([20, 10, 8, 4, 0.25, 0, 0], [40, 10, 8, 4, 0.2501, 0, 0])
    found = detect_yolov8({"predictions": output}, YoloOptions(score=0.25), WHOLE)
    assert found.scores.tolist() == pytest.approx([0.2501])


def test_yolov8_normalized_and_letterboxed() -> None:
    """A frame of 128 x 32 at half its size in the middle of an input of 64 x 32."""
    placed = ImagePlacement(128, 32, 64, 32, 0.5, 0.5, 0, 8)
    output = yolov8_output([0.5, 0.5, 0.25, 0.25, 0, 0.7, 0])
    found = detect_yolov8({"predictions": output}, YoloOptions(normalized=True), placed)
    np.testing.assert_allclose(found.boxes, [[48, 8, 80, 24]], atol=1e-4)


def test_yolov5_score_is_objectness_by_class() -> None:
    rows = np.zeros((1, 63, 8), np.float32)
    rows[0, 5] = [20, 10, 8, 4, 0.5, 0.1, 0.2, 0.8]
    rows[0, 6] = [40, 10, 8, 4, 0.4, 0.5, 0.2, 0.3]  # 0.2: objectness passes, the product does not
    found = detect_yolov5({"predictions": rows}, YoloOptions(score=0.25), WHOLE)
    np.testing.assert_allclose(found.boxes, [[16, 8, 24, 12]], atol=1e-5)
    np.testing.assert_allclose(found.scores, [0.4])
    assert found.classes.tolist() == [2]


def test_yolov5_normalized() -> None:
    rows = np.zeros((1, 63, 6), np.float32)
    rows[0, 0] = [0.5, 0.5, 0.25, 0.5, 1, 1]
    found = detect_yolov5({"predictions": rows}, YoloOptions(normalized=True), WHOLE)
    np.testing.assert_allclose(found.boxes, [[24, 8, 40, 24]], atol=1e-5)


def yolox_output(width: int, height: int, strides: tuple[int, ...], classes: int = 3) -> Array:
    cells = sum((width // s) * (height // s) for s in strides)
    return np.zeros((1, cells, 5 + classes), np.float32)


def test_yolox_places_a_box_in_its_cell() -> None:
    output = yolox_output(64, 32, (8, 16))
    # Second grid (4 x 2 cells of 16 pixels), cell x = 3, y = 1: centre (3.25, 1.5) x 16, size e^0.5 x 16.
    row = output[0, 8 * 4 + 1 * 4 + 3]
    row[:] = [0.25, 0.5, 0.0, np.log(0.5), 0.9, 0.1, 0.2, 0.8]
    found = detect_yolox({"predictions": output}, YoloxOptions(score=0.3, strides=(8, 16)), WHOLE)
    np.testing.assert_allclose(found.boxes, [[44, 20, 60, 28]], atol=1e-4)
    np.testing.assert_allclose(found.scores, [0.72], rtol=1e-6)
    assert found.classes.tolist() == [2]
    assert found.landmarks is None


def test_yolox_keeps_the_grids_of_each_size_and_strides_apart() -> None:
    """They are made once; strides may come as a list, from one call's options."""
    for width, strides in ((64, (8, 16)), (64, (16, 8)), (32, (8, 16)), (64, (8, 16))):
        output = yolox_output(width, 32, strides)
        output[0, 1] = [0.5, 0.5, 0, 0, 1, 1, 0, 0]  # the second cell of the first grid
        placed = ImagePlacement(width, 32, width, 32)
        found = detect_yolox({"predictions": output}, YoloxOptions(strides=[*strides]), placed)  # type: ignore[arg-type]
        side = strides[0]
        np.testing.assert_allclose(found.boxes, [[side, 0, 2 * side, side]])


def test_yolox_score_is_the_product() -> None:
    output = yolox_output(64, 32, (8,))
    output[0, 5] = [0.5, 0.5, 0, 0, 0.6, 0.6, 0, 0]  # 0.36
    assert len(detect_yolox({"predictions": output}, YoloxOptions(score=0.35, strides=(8,)), WHOLE)) == 1
    assert len(detect_yolox({"predictions": output}, YoloxOptions(score=0.37, strides=(8,)), WHOLE)) == 0


def test_yolox_huge_sizes_stay_finite() -> None:
    output = yolox_output(64, 32, (8,))
    output[0, 0:2] = [0, 0, 300, 300, 1, 1, 0, 0]  # two: of infinite ones neither would cover the other
    found = detect_yolox({"predictions": output}, YoloxOptions(strides=(8,)), WHOLE)
    assert found.boxes.tolist() == [[0, 0, 64, 32]]
