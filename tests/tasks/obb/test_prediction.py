"""Oriented boxes as text and JSON."""

from __future__ import annotations

import math

import numpy as np

from edgekit.processing.predictions.obb import OrientedDetections


def test_oriented_boxes_read_as_text_and_json() -> None:
    boxes = np.array([[40, 20, 16, 8, math.pi / 2]], np.float32)
    found = OrientedDetections(boxes, np.array([0.5], np.float32), np.array([0]), ["ship"])
    assert str(found) == "ship  0.500  16x8 at 40,20 turned by 90 degrees"
    assert found.as_json() == [
        {
            "index": 0,
            "label": "ship",
            "score": 0.5,
            "box": [40.0, 20.0, 16.0, 8.0, 1.5708],
            "corners": [[44.0, 12.0], [44.0, 28.0], [36.0, 28.0], [36.0, 12.0]],
        }
    ]
