"""DETR's and RT-DETR's outputs, by hand and against a slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.detr import DetrOptions, RtdetrOptions, detect_detr, detect_rtdetr

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


def test_other_forms_are_refused() -> None:
    with pytest.raises(EngineError) as error:
        detect_detr({**detr_outputs(), "boxes": np.zeros((1, 3, 4), np.float32)}, DetrOptions(), WHOLE)
    assert str(error.value) == "`logits` has 20 rows but `boxes` has 3"
    with pytest.raises(EngineError) as error:
        detect_rtdetr({"predictions": np.zeros((1, 300, 4), np.float32)}, RtdetrOptions(), WHOLE)
    assert str(error.value) == "the output is [1, 300, 4]; rtdetr decodes [1, queries, 4 + classes]"
    with pytest.raises(ValueError, match="must") as problem:
        DetrOptions(activation="relu")
    assert str(problem.value) == "activation is 'relu'; it must be one of softmax, sigmoid"
