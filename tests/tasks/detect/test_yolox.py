"""YOLOX outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.yolox import YoloxOptions, detect_yolox

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


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


def test_yolox_with_other_strides_is_refused() -> None:
    with pytest.raises(EngineError) as error:
        detect_yolox({"predictions": yolox_output(64, 32, (8,))}, YoloxOptions(strides=(8, 16)), WHOLE)
    assert str(error.value) == (
        "the output has 32 rows, but strides [8, 16] on an input of 64x32 make 40; set strides in the card"
    )
