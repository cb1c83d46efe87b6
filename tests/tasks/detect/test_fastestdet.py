"""FastestDet's output by hand, and against the project's formula cell by cell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.fastestdet import FastestdetOptions, detect_fastestdet

WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


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


def test_other_forms_are_refused() -> None:
    with pytest.raises(EngineError) as error:
        detect_fastestdet({"predictions": np.zeros((1, 85, 484), np.float32)}, FastestdetOptions(), WHOLE)
    assert str(error.value) == (
        "the output is [1, 85, 484]; fastestdet decodes [1, 5 + classes, rows, columns]"
    )
