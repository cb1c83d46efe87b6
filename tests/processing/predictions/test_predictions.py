"""Predictions as text and JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_classes_read_as_text_and_json() -> None:
    found = Classes(np.array([1, 7]), np.array([0.75, 0.25], np.float32), ["cat", "dog"])
    assert str(found) == "dog  0.750\n7    0.250"
    assert found.as_json()[0] == {"index": 1, "label": "dog", "score": 0.75}


def test_detections_read_as_text_and_json() -> None:
    found = Detections(
        np.array([[1, 2, 30.5, 40]], np.float32),
        np.array([0.5], np.float32),
        np.array([0]),
        ["face"],
        np.array([[[3, 4]]], np.float32),
    )
    assert str(found) == "face  0.500  1,2 to 30,40"
    assert found.as_json() == [
        {"index": 0, "label": "face", "score": 0.5, "box": [1.0, 2.0, 30.5, 40.0], "landmarks": [[3.0, 4.0]]}
    ]
    assert found[0].landmarks == ((3.0, 4.0),)
