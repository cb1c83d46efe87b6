"""YOLOv8 outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.yolov8 import YoloOptions, detect_yolov8

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


def test_yolov8_refuses_another_form() -> None:
    with pytest.raises(EngineError) as error:
        detect_yolov8({"predictions": np.zeros((1, 4, 8), np.float32)}, YoloOptions(), WHOLE)
    assert str(error.value) == "the output is [1, 4, 8]; yolov8 decodes [1, 4 + classes, boxes]"
    with pytest.raises(EngineError, match=r"the output is \[8400\]"):
        detect_yolov8({"predictions": np.zeros(8400, np.float32)}, YoloOptions(), WHOLE)
