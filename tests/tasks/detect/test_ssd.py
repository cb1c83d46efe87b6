"""SSD outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.ssd import SsdOptions, detect_ssd

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_ssd_boxes_are_fractions_of_the_input() -> None:
    boxes = np.array([[[[0.25, 0.5, 0.75, 1.0]], [[0, 0, 0.1, 0.1]]]], np.float32)
    scores = np.array([[[0.1, 0.9], [0.2, 0.1]]], np.float32)
    found = detect_ssd({"boxes": boxes, "scores": scores}, SsdOptions(first_class=1), WHOLE)
    assert found.boxes.tolist() == [[32, 8, 64, 24]]
    assert found.classes.tolist() == [2]
    np.testing.assert_allclose(found.scores, [0.9])


def test_ssd_with_unlike_outputs_is_refused() -> None:
    outputs = {"boxes": np.zeros((1, 3, 4), np.float32), "scores": np.zeros((1, 2, 5), np.float32)}
    with pytest.raises(EngineError) as error:
        detect_ssd(outputs, SsdOptions(), WHOLE)
    assert str(error.value) == "`boxes` has 3 rows but `scores` has 2"


def test_boxes_go_to_the_frame_and_stay_in_it() -> None:
    placed = ImagePlacement(200, 100, 64, 32, 0.32, 0.16, 0, 8)  # half of the input's height is padding
    boxes = np.array([[[0.0, 0.0, 1.0, 0.5]]], np.float32)
    found = detect_ssd({"boxes": boxes, "scores": np.ones((1, 1, 1), np.float32)}, SsdOptions(), placed)
    np.testing.assert_allclose(found.boxes, [[0, 0, 100, 100]], rtol=1e-6)  # 64 / 0.32 = 200 tall in x
