"""Outputs of detectors that need no NMS, made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.end2end import (
    DetectEnd2EndOptions,
    PostprocessedOptions,
    detect_end2end,
    detect_postprocessed,
)

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_end2end_rows_best_first_and_none_is_suppressed() -> None:
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, 7] = [1, 2, 11, 12, 0.5, 3]
    rows[0, 9] = [1, 2, 11, 12, 0.75, 3]
    rows[0, 11] = [20, 2, 90, 12, 0.6, 0]  # beyond the frame
    found = detect_end2end({"predictions": rows}, DetectEnd2EndOptions(), WHOLE)
    assert found.boxes.tolist() == [[1, 2, 11, 12], [20, 2, 64, 12], [1, 2, 11, 12]]
    assert (found.classes.tolist(), found.scores.tolist()) == ([3, 0, 3], pytest.approx([0.75, 0.6, 0.5]))
    assert len(detect_end2end({"predictions": rows}, DetectEnd2EndOptions(top=2), WHOLE)) == 2


@pytest.mark.parametrize(
    ("order", "box"),
    [
        ("x1y1x2y2", [0.25, 0.25, 0.5, 0.75]),
        ("y1x1y2x2", [0.25, 0.25, 0.75, 0.5]),
        ("xywh", [0.375, 0.5, 0.25, 0.5]),
    ],
)
def test_end2end_normalized(order: str, box: list[float]) -> None:
    """``xywh`` is what Ultralytics' RT-DETR gives."""
    rows = np.array([[[*box, 0.9, 1]]], np.float32)
    found = detect_end2end({"predictions": rows}, DetectEnd2EndOptions(normalized=True, boxes=order), WHOLE)
    assert found.boxes.tolist() == [[16, 8, 32, 24]]
    assert rows[0, 0, :4].tolist() == box  # the output itself is left as it was


def test_end2end_refuses_another_form() -> None:
    with pytest.raises(EngineError) as error:
        detect_end2end({"predictions": np.zeros((1, 84, 8400), np.float32)}, DetectEnd2EndOptions(), WHOLE)
    assert str(error.value) == "the output is [1, 84, 8400]; end2end decodes [1, boxes, 6] here"


def postprocessed(boxes: Any) -> dict[str, Array]:
    """Three boxes; TFLite's op leaves what it likes behind its count."""
    return {
        "boxes": np.array([boxes], np.float32),
        "classes": np.array([[0, 16, 5]], np.float32),
        "scores": np.array([[0.5, 0.9, 0.8]], np.float32),
    }


def test_detection_postprocess_of_tflite() -> None:
    boxes = [[0.25, 0.5, 0.75, 1.0], [0.5, 0, 1.5, 0.25], [0, 0, 1, 1]]
    outputs = {**postprocessed(boxes), "count": np.array([2], np.float32)}
    options = PostprocessedOptions(boxes="y1x1y2x2", normalized=True, first_class=1)
    found = detect_postprocessed(outputs, options, WHOLE)
    assert found.boxes.tolist() == [[0, 16, 16, 32], [32, 8, 64, 24]]
    assert found.classes.tolist() == [17, 1]
    assert found.classes.dtype == np.int64
    assert len(detect_postprocessed(postprocessed(boxes), options, WHOLE)) == 3


@pytest.mark.parametrize("count", [-1, 0])
def test_nothing_is_valid(count: int) -> None:
    outputs = {**postprocessed([[0, 0, 9, 9]] * 3), "count": np.array(count, np.int32)}
    assert len(detect_postprocessed(outputs, PostprocessedOptions(), WHOLE)) == 0


@pytest.mark.parametrize(
    ("order", "box"), [("x1y1x2y2", [4, 6, 20, 10]), ("y1x1y2x2", [6, 4, 10, 20]), ("xywh", [12, 8, 16, 4])]
)
def test_orders_of_boxes(order: str, box: list[float]) -> None:
    found = detect_postprocessed(postprocessed([box] * 3), PostprocessedOptions(boxes=order), WHOLE)
    assert found.boxes[0].tolist() == [4, 6, 20, 10]


def test_postprocessed_refuses_what_does_not_fit() -> None:
    with pytest.raises(EngineError) as error:
        detect_postprocessed(postprocessed([[0, 0, 1, 1]] * 2), PostprocessedOptions(), WHOLE)
    assert str(error.value) == "`boxes` has 2 rows, `scores` 3 and `classes` 3; they must be equal"
    with pytest.raises(ValueError, match="must") as problem:
        PostprocessedOptions(boxes="xyxy")
    assert str(problem.value) == "boxes is 'xyxy'; it must be one of x1y1x2y2, y1x1y2x2, xywh"
