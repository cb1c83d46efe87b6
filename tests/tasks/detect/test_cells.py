"""NanoDet's and FastestDet's outputs, by hand and against their formulas cell by cell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.fastestdet import FastestdetOptions, detect_fastestdet
from edgekit.tasks.detect.nanodet import NanodetOptions, detect_nanodet

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input
CELLS = 8 * 4 + 4 * 2  # strides 8 and 16


def test_a_box_from_its_distances() -> None:
    output = np.zeros((1, CELLS, 2 + 4 * 8), np.float32)
    row = output[0, 32 + 4 + 2]  # the second grid's cell x = 2, y = 1: at 32, 16
    row[1] = 0.9
    for side, distance in enumerate([1, 0, 2, 1]):  # 16, 0, 32 and 16 pixels
        row[2 + side * 8 + distance] = 100
    options = NanodetOptions(strides=(8, 16))
    found = detect_nanodet({"predictions": output}, options, WHOLE, ["a", "b"])
    np.testing.assert_allclose(found.boxes, [[16, 16, 64, 32]], atol=1e-4)
    assert (found[0].label, round(found[0].score, 6)) == ("b", 0.9)
    middle = detect_nanodet(
        {"predictions": output}, NanodetOptions(strides=(8, 16), offset=0.5), WHOLE, ["a", "b"]
    )
    np.testing.assert_allclose(middle.boxes, [[24, 24, 64, 32]], atol=1e-4)  # ends at the input's edge


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_is_the_papers_formula(offset: float) -> None:
    rng = np.random.default_rng(0)
    output = rng.normal(0, 3, (1, CELLS, 3 + 4 * 6)).astype(np.float32)
    output[0, :, :3] = rng.uniform(0, 0.5, (CELLS, 3))
    options = NanodetOptions(score=0.35, iou=1.0, top=1000, strides=(8, 16), reg_max=5, offset=offset)
    expected = []
    row = 0
    for stride in (8, 16):
        for y in range(32 // stride):
            for x in range(64 // stride):
                values = output[0, row].astype(np.float64)
                row += 1
                sides = []
                for side in range(4):
                    powers = np.exp(values[3 + side * 6 : 9 + side * 6])
                    sides.append(float((powers / powers.sum() * np.arange(6)).sum() * stride))
                left, top = (x + offset) * stride - sides[0], (y + offset) * stride - sides[1]
                right, bottom = (x + offset) * stride + sides[2], (y + offset) * stride + sides[3]
                box = [max(0, left), max(0, top), min(64, right), min(32, bottom)]
                expected += [(score, kind, box) for kind, score in enumerate(values[:3]) if score > 0.35]
    expected.sort(key=lambda one: -one[0])
    found = detect_nanodet({"predictions": output}, options, WHOLE)
    assert len(expected) > 20
    np.testing.assert_allclose(found.scores, [one[0] for one in expected], rtol=1e-6)
    assert found.classes.tolist() == [one[1] for one in expected]
    np.testing.assert_allclose(found.boxes, [one[2] for one in expected], atol=1e-4)


def test_a_box_in_its_cell() -> None:
    output = np.zeros((1, 5 + 2, 4, 8), np.float32)
    output[0, :, 1, 2] = [0.9, math.atanh(0.5), math.atanh(-0.5), math.log(1 / 3), 0, 0.1, 0.8]
    found = detect_fastestdet({"predictions": output}, FastestdetOptions(), WHOLE, ["a", "b"])
    # x: 2.5 / 8 of 64 = 20 -+ 8; y: 0.5 / 4 of 32 = 4 -+ 8, and the frame begins at 0
    np.testing.assert_allclose(found.boxes, [[12, 0, 28, 12]], atol=1e-4)
    assert found[0].score == pytest.approx(0.9**0.6 * 0.8**0.4)
    assert found[0].label == "b"


def test_is_the_projects_formula() -> None:
    rng = np.random.default_rng(0)
    output = rng.normal(0, 1, (1, 5 + 3, 4, 8)).astype(np.float32)
    output[0, [0, 5, 6, 7]] = rng.uniform(0, 1, (4, 4, 8))
    expected = []
    for y in range(4):
        for x in range(8):
            values = output[0, :, y, x].astype(np.float64)
            score = values[0] ** 0.6 * values[5:].max() ** 0.4
            if score > 0.5:
                cx, cy = (x + math.tanh(values[1])) / 8 * 64, (y + math.tanh(values[2])) / 4 * 32
                w, h = 64 / (1 + math.exp(-values[3])), 32 / (1 + math.exp(-values[4]))
                box = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
                expected.append((score, int(values[5:].argmax()), np.clip(box, 0, [64, 32, 64, 32])))
    expected.sort(key=lambda one: -one[0])
    options = FastestdetOptions(score=0.5, iou=1.0)
    found = detect_fastestdet({"predictions": output}, options, WHOLE)
    assert len(expected) > 5
    np.testing.assert_allclose(found.scores, [one[0] for one in expected], rtol=1e-5)
    assert found.classes.tolist() == [one[1] for one in expected]
    np.testing.assert_allclose(found.boxes, [one[2] for one in expected], atol=1e-3)


def test_scores_below_zero_are_none() -> None:
    """int8 can leave a probability a little below 0; its power would be no number."""
    output = np.full((1, 5 + 2, 4, 8), -0.01, np.float32)
    with np.errstate(all="raise"):
        assert len(detect_fastestdet({"predictions": output}, FastestdetOptions(score=0.0), WHOLE)) == 0
