"""YOLOv5 outputs made by hand, and what they must decode to."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.yolov5 import detect_yolov5
from edgekit.tasks.detect.yolov8 import YoloOptions

WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_yolov5_score_is_objectness_by_class() -> None:
    rows = np.zeros((1, 63, 8), np.float32)
    rows[0, 5] = [20, 10, 8, 4, 0.5, 0.1, 0.2, 0.8]
    rows[0, 6] = [40, 10, 8, 4, 0.4, 0.5, 0.2, 0.3]  # 0.2: objectness passes, the product does not
    found = detect_yolov5({"predictions": rows}, YoloOptions(score=0.25), WHOLE)
    np.testing.assert_allclose(found.boxes, [[16, 8, 24, 12]], atol=1e-5)
    np.testing.assert_allclose(found.scores, [0.4])
    assert found.classes.tolist() == [2]


def test_yolov5_normalized() -> None:
    rows = np.zeros((1, 63, 6), np.float32)
    rows[0, 0] = [0.5, 0.5, 0.25, 0.5, 1, 1]
    found = detect_yolov5({"predictions": rows}, YoloOptions(normalized=True), WHOLE)
    np.testing.assert_allclose(found.boxes, [[24, 8, 40, 24]], atol=1e-5)


def test_yolov5_refuses_another_form() -> None:
    with pytest.raises(EngineError) as error:
        detect_yolov5({"predictions": np.zeros((1, 25200, 5), np.float32)}, YoloOptions(), WHOLE)
    assert str(error.value) == "the output is [1, 25200, 5]; yolov5 decodes [1, boxes, 5 + classes]"
