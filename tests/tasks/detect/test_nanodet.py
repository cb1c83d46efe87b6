"""NanoDet's output by hand, and against the paper's formula cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
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


def test_other_forms_are_refused() -> None:
    with pytest.raises(EngineError) as error:
        detect_nanodet({"predictions": np.zeros((1, 40, 32), np.float32)}, NanodetOptions(), WHOLE)
    assert str(error.value) == (
        "the output is [1, 40, 32]; nanodet with reg_max 7 decodes [1, cells, classes + 32]"
    )
    with pytest.raises(EngineError) as error:
        detect_nanodet({"predictions": np.zeros((1, 40, 34), np.float32)}, NanodetOptions(), WHOLE)
    assert str(error.value) == (
        "the output has 40 rows, but strides [8, 16, 32, 64] on an input of 64x32 make 43; set strides in "
        "the card"
    )
