"""YOLO-seg outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_table import find_decoder

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(32, 32, 32, 32)  # the frame is the input
BOX = [16, 12, 16, 8]  # x 8 to 24, y 8 to 16


def outputs(decode: str) -> dict[str, Array]:
    """A box whose mask is its left half: the first prototype is above 0 left of x = 16, the second is 1."""
    prototypes = np.ones((1, 2, 8, 8), np.float32)
    prototypes[0, 0] = np.where(np.arange(8) < 4, 1, -1)
    rows = np.zeros((40, 4 + 3 + 2), np.float32)
    rows[7] = [*BOX, 0, 0.8, 0, 1, 0]
    rows[8] = [*BOX, 0, 0.6, 0, 0, 1]  # covered
    if decode == "yolov8":
        return {"predictions": rows.T[None], "prototypes": prototypes}
    if decode == "yolov5":
        objectness = (rows.sum(axis=1, keepdims=True) > 0).astype(np.float32)
        return {
            "predictions": np.concatenate([rows[:, :4], objectness, rows[:, 4:]], axis=1)[None],
            "prototypes": prototypes,
        }
    end2end = np.zeros((1, 300, 8), np.float32)
    end2end[0, 3] = [8, 8, 24, 16, 0.8, 1, 1, 0]
    return {"predictions": end2end, "prototypes": prototypes}


@pytest.mark.parametrize("decode", ["yolov8", "yolov5", "end2end"])
def test_box_and_mask(decode: str) -> None:
    decoder = find_decoder("segment-instances", decode)
    found: Any = decoder.function(outputs(decode), decoder.options(), WHOLE, ["cat", "dog", "cow"])
    assert len(found) == 1
    assert (found[0].label, found[0].score, found[0].box) == ("dog", pytest.approx(0.8), (8, 8, 24, 16))
    expected = np.zeros((32, 32), np.bool_)
    expected[8:16, 8:16] = True
    np.testing.assert_array_equal(found.mask(0), expected)


@pytest.mark.parametrize("decode", ["yolov8", "yolov5", "end2end"])
def test_normalized_positions(decode: str) -> None:
    given, decoder = outputs(decode), find_decoder("segment-instances", decode)
    rows = given["predictions"]
    (rows[:, :4] if decode == "yolov8" else rows[..., :4])[:] /= 32
    found: Any = decoder.function(given, decoder.options(normalized=True), WHOLE, ())
    assert found[0].box == (8, 8, 24, 16)
