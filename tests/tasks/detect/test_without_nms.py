"""Outputs of detectors that need no NMS, by hand and against a slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.detr import DetrOptions, RtdetrOptions, detect_detr, detect_rtdetr
from edgekit.tasks.detect.end2end import (
    DetectEnd2EndOptions,
    PostprocessedOptions,
    detect_end2end,
    detect_postprocessed,
)

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def detr_outputs(queries: int = 20, classes: int = 5) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    logits = rng.normal(-2, 3, (1, queries, classes)).astype(np.float32)
    return {"logits": logits, "boxes": rng.uniform(0.2, 0.8, (1, queries, 4)).astype(np.float32)}


def test_softmax_has_a_last_class_for_no_object() -> None:
    logits = np.log(np.array([[[0.6, 0.1, 0.3], [0.1, 0.2, 0.7], [0.3, 0.55, 0.15]]], np.float32))
    boxes = np.array([[[0.5, 0.5, 0.25, 0.5], [0.5, 0.5, 1, 1], [0.25, 0.5, 0.5, 1.5]]], np.float32)
    found = detect_detr({"logits": logits, "boxes": boxes}, DetrOptions(), WHOLE, ["a", "b", "none"])
    np.testing.assert_allclose(found.boxes, [[24, 8, 40, 24], [0, 0, 32, 32]])
    np.testing.assert_allclose(found.scores, [0.6, 0.55], rtol=1e-6)
    assert [one.label for one in found] == ["a", "b"]


def test_sigmoid_lets_a_query_be_several_classes() -> None:
    logits = np.array([[[2, 1, -3], [-9, 3, -9]]], np.float32)
    boxes = np.array([[[0.5, 0.5, 0.25, 0.5], [0.25, 0.5, 0.5, 1]]], np.float32)
    options = DetrOptions(activation="sigmoid")
    found = detect_detr({"logits": logits, "boxes": boxes}, options, WHOLE)
    np.testing.assert_allclose(found.scores, 1 / (1 + np.exp([-3.0, -2.0, -1.0])), rtol=1e-6)
    assert found.classes.tolist() == [1, 0, 1]
    np.testing.assert_allclose(found.boxes, [[0, 0, 32, 32], [24, 8, 40, 24], [24, 8, 40, 24]])


@pytest.mark.parametrize("score", [0.0, 0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_all_that_score_above_the_threshold(activation: str, score: float) -> None:
    outputs = detr_outputs()
    logits = outputs["logits"][0].astype(np.float64)
    expected = []
    for row in logits:
        if activation == "softmax":
            shares = np.exp(row) / np.exp(row).sum()
            expected += [(shares[:-1].max(), int(shares[:-1].argmax()))]
        else:
            expected += [(1 / (1 + np.exp(-x)), number) for number, x in enumerate(row)]
    expected = sorted((pair for pair in expected if pair[0] > score), reverse=True)
    found = detect_detr(outputs, DetrOptions(activation, score, 1000), WHOLE)
    np.testing.assert_allclose(found.scores, [pair[0] for pair in expected], rtol=1e-5)
    assert found.classes.tolist() == [pair[1] for pair in expected]


def test_huge_logits_are_finite() -> None:
    boxes = np.full((1, 2, 4), 0.5, np.float32)
    for activation in ("softmax", "sigmoid"):
        logits = np.array([[[3e38, -3e38], [-3e38, 3e38]]], np.float32)
        found = detect_detr({"logits": logits, "boxes": boxes}, DetrOptions(activation, 0.0), WHOLE)
        assert np.isfinite(found.scores).all()
        assert found.scores.max() == 1


def test_rtdetr_of_ultralytics() -> None:
    rows = np.zeros((1, 300, 7), np.float32)
    rows[0, 5] = [0.5, 0.5, 0.25, 0.5, 0.1, 0.2, 0.9]
    rows[0, 6] = [0.5, 0.5, 0.25, 0.5, 0.1, 0.8, 0.7]
    found = detect_rtdetr({"predictions": rows}, RtdetrOptions(), WHOLE)
    np.testing.assert_allclose(found.boxes, [[24, 8, 40, 24]] * 2)
    np.testing.assert_allclose(found.scores, [0.9, 0.8])
    assert found.classes.tolist() == [2, 1]
    rows[0, :, :4] *= [64, 32, 64, 32]
    pixels = detect_rtdetr({"predictions": rows}, RtdetrOptions(normalized=False), WHOLE)
    np.testing.assert_allclose(pixels.boxes, found.boxes)


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
