"""What all detectors share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_table import find_decoder
from edgekit.tasks.classify.decode import ClassifyOptions
from edgekit.tasks.detect.boxes import DetectOptions
from edgekit.tasks.detect.centerface import CenterfaceOptions
from edgekit.tasks.detect.detr import DetrOptions
from edgekit.tasks.detect.end2end import End2EndOptions, PostprocessedOptions
from edgekit.tasks.detect.ssd import SsdOptions
from edgekit.tasks.detect.ssd_anchors import SsdAnchorsOptions
from edgekit.tasks.detect.yolox import YoloxOptions

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input
PROTOTYPES = np.zeros((1, 2, 8, 8), np.float32)
CENTERFACE = {
    "heatmap": np.zeros((1, 1, 8, 16), np.float32),
    "scale": np.zeros((1, 2, 8, 16), np.float32),
    "offset": np.zeros((1, 2, 8, 16), np.float32),
    "landmarks": np.zeros((1, 10, 8, 16), np.float32),
}


@pytest.mark.parametrize(
    ("decode", "outputs"),
    [
        ("obb/yolov8", {"predictions": np.zeros((1, 20, 40), np.float32)}),
        ("obb/end2end", {"predictions": np.zeros((1, 300, 7), np.float32)}),
        ("pose/yolov8", {"predictions": np.zeros((1, 56, 40), np.float32)}),
        ("pose/end2end", {"predictions": np.zeros((1, 300, 57), np.float32)}),
        ("segment-instances/yolov8", {"predictions": np.zeros((1, 9, 40)), "prototypes": PROTOTYPES}),
        ("segment-instances/yolov5", {"predictions": np.zeros((1, 40, 10)), "prototypes": PROTOTYPES}),
        ("segment-instances/end2end", {"predictions": np.zeros((1, 300, 8)), "prototypes": PROTOTYPES}),
        ("centerface", CENTERFACE),
        ("blazeface", {"boxes": np.zeros((1, 112, 16), np.float32), "scores": np.full((1, 112, 1), -9.0)}),
        ("centernet", {"heatmap": np.full((1, 2, 8, 16), -9.0), "size": np.zeros((1, 2, 8, 16))}),
        ("detr", {"logits": np.zeros((1, 9, 91), np.float32), "boxes": np.zeros((1, 9, 4), np.float32)}),
        ("end2end", {"predictions": np.zeros((1, 300, 6), np.float32)}),
        ("fastestdet", {"predictions": np.zeros((1, 85, 4, 8), np.float32)}),
        ("nanodet", {"predictions": np.zeros((1, 43, 34), np.float32)}),
        ("rtdetr", {"predictions": np.zeros((1, 300, 84), np.float32)}),
        ("ssd-anchors", {"boxes": np.zeros((1, 60, 4)), "scores": np.full((1, 60, 2), -9.0)}),
        ("yolov5", {"predictions": np.zeros((1, 42, 8), np.float32)}),
        ("yolov8", {"predictions": np.zeros((1, 7, 42), np.float32)}),
        ("yolox", {"predictions": np.zeros((1, 42, 8), np.float32)}),
        ("ssd", {"boxes": np.zeros((1, 4, 4), np.float32), "scores": np.zeros((1, 4, 9), np.float32)}),
    ],
)
def test_nothing_found_is_an_answer(decode: str, outputs: dict[str, Array]) -> None:
    kind, _, form = decode.rpartition("/")
    decoder = find_decoder(kind or "detect", form)
    found: Any = decoder.function(outputs, decoder.options(), WHOLE, ())
    assert (len(found), list(found), found.as_json(), str(found)) == (0, [], [], "nothing found")
    assert found.boxes.shape == (0, 5 if kind == "obb" else 4)
    if kind == "pose":
        assert found.points.shape == (0, 17, 2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DetectOptions(score=1.5), "score is 1.5; it must be from 0 to 1"),
        (lambda: SsdOptions(class_agnostic=1), "class_agnostic is 1; it must be true or false"),  # type: ignore[arg-type]
        (lambda: YoloxOptions(iou=-0.1), "iou is -0.1; it must be from 0 to 1"),
        (lambda: End2EndOptions(score=-1), "score is -1; it must be from 0 to 1"),
        (lambda: End2EndOptions(top=0), "top is 0; it must be at least 1"),
        (lambda: SsdOptions(top=0), "top is 0; it must be at least 1"),
        (lambda: SsdOptions(first_class=-1), "first_class is -1; it must be at least 0"),
        (lambda: YoloxOptions(strides=()), "strides is empty; it must name the grids, e.g. [8, 16, 32]"),
        (lambda: YoloxOptions(strides=(8, 0)), "strides is 0; it must be at least 1"),
        (lambda: CenterfaceOptions(stride=0), "stride is 0; it must be at least 1"),
        (lambda: ClassifyOptions(scale=0), "scale is 0; it must be above 0"),
        (lambda: SsdAnchorsOptions(aspect_ratios=()), "aspect_ratios is 0; it must be at least 1"),
        (lambda: SsdAnchorsOptions(aspect_ratios=(1.0, 0.0)), "aspect_ratios has 0; it must be above 0"),
        (
            lambda: SsdAnchorsOptions(interpolated_ratio=-1.0),
            "interpolated_ratio is -1; it must be at least 0",
        ),
        (lambda: SsdAnchorsOptions(min_scale=2.0), "min_scale is 2; it must be from 0 to 1"),
        (
            lambda: SsdAnchorsOptions(scales=(10.0, 10.0)),
            "scales is [10.0, 10.0]; it must be four numbers above 0",
        ),
        (
            lambda: SsdAnchorsOptions(activation="relu"),
            "activation is 'relu'; it must be one of sigmoid, softmax, none",
        ),
        (lambda: DetrOptions("relu"), "activation is 'relu'; it must be one of softmax, sigmoid"),
        (
            lambda: PostprocessedOptions(boxes="xyxy"),
            "boxes is 'xyxy'; it must be one of x1y1x2y2, y1x1y2x2, xywh",
        ),
    ],
)
def test_options_out_of_bounds(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        make()
    assert str(error.value) == text


def test_class_agnostic_suppression_leaves_one_of_two_classes() -> None:
    boxes = np.array([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.52], [0.5, 0.5, 1, 1]]], np.float32)
    outputs = {"boxes": boxes, "scores": np.array([[[0.9, 0], [0, 0.8], [0, 0.7]]], np.float32)}
    detect = find_decoder("detect", "ssd").function
    for agnostic, classes in ((False, [0, 1, 1]), (True, [0, 1])):
        found = detect(outputs, SsdOptions(class_agnostic=agnostic), WHOLE, ())
        assert isinstance(found, Detections)
        assert list(found.classes) == classes
