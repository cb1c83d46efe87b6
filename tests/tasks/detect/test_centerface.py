"""CenterFace outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.centerface import CenterfaceOptions, detect_centerface

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def centerface_outputs() -> dict[str, Array]:
    planes = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}
    return {role: np.zeros((1, count, 8, 16), np.float32) for role, count in planes.items()}


def test_centerface_box_and_landmarks() -> None:
    outputs = centerface_outputs()
    outputs["heatmap"][0, 0, 3, 6] = 0.8
    outputs["scale"][0, :, 3, 6] = np.log([2.0, 3.0])  # height 8, width 12 pixels
    outputs["offset"][0, :, 3, 6] = [0.25, -0.5]  # centre y = (3 + .25 + .5) 4 = 15, x = (6 - .5 + .5) 4 = 24
    outputs["landmarks"][0, :, 3, 6] = [0.5, 0.25, 0.5, 0.75, 0.6, 0.5, 0.8, 0.3, 0.8, 0.7]  # y, x
    found = detect_centerface(outputs, CenterfaceOptions(score=0.5), WHOLE)
    np.testing.assert_allclose(found.boxes, [[18, 11, 30, 19]], atol=1e-4)
    assert found.landmarks is not None
    points = np.array([[21, 15], [27, 15], [24, 15.8], [21.6, 17.4], [26.4, 17.4]])
    np.testing.assert_allclose(found.landmarks[0], points, atol=1e-4)
    np.testing.assert_allclose(found.scores, [0.8])
