"""Outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.cards.decoders import (
    DECODERS,
    CenterfaceOptions,
    ClassifyOptions,
    DetectOptions,
    SsdOptions,
    YoloxOptions,
    classify_logits,
    classify_probabilities,
    detect_centerface,
    detect_ssd,
    detect_yolox,
)
from edgekit.cards.predictions import Classes, Detections, ImagePlacement
from edgekit.errors import EngineError

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
        "the output has 32 rows, and strides [8, 16] on an input of 64x32 make 40; set strides in the card"
    )


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
    assert str(error.value) == "boxes has 3 rows and scores 2; they must be as many"


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


@pytest.mark.parametrize(
    ("decode", "outputs"),
    [
        ("centerface", centerface_outputs()),
        ("yolox", {"predictions": yolox_output(64, 32, (8, 16, 32))}),
        ("ssd", {"boxes": np.zeros((1, 4, 4), np.float32), "scores": np.zeros((1, 4, 9), np.float32)}),
    ],
)
def test_nothing_found_is_an_answer(decode: str, outputs: dict[str, Array]) -> None:
    decoder = DECODERS["detect"][decode]
    found = decoder.function(outputs, decoder.options(), WHOLE)
    assert isinstance(found, Detections)
    assert (len(found), list(found), found.as_json(), str(found)) == (0, [], [], "nothing found")
    assert found.boxes.shape == (0, 4)


def test_boxes_go_to_the_frame_and_stay_in_it() -> None:
    placed = ImagePlacement(200, 100, 64, 32, 0.32, 0.16, 0, 8)  # half of the input's height is padding
    boxes = np.array([[[0.0, 0.0, 1.0, 0.5]]], np.float32)
    found = detect_ssd({"boxes": boxes, "scores": np.ones((1, 1, 1), np.float32)}, SsdOptions(), placed)
    np.testing.assert_allclose(found.boxes, [[0, 0, 100, 100]], rtol=1e-6)  # 64 / 0.32 = 200 tall in x


def test_logits_become_probabilities() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32)) + 500  # exp(500) would overflow
    found = classify_logits({"scores": logits}, ClassifyOptions(top=2), WHOLE)
    assert found.indices.tolist() == [1, 2]
    np.testing.assert_allclose(found.scores, [0.6, 0.3], rtol=1e-4)


def test_integer_probabilities_are_scaled() -> None:
    found = classify_probabilities(
        {"scores": np.array([[-128, 127, -64]], np.int8)},
        ClassifyOptions(scale=1 / 256, zero_point=-128),
        WHOLE,
    )
    assert found.indices.tolist() == [1, 2, 0]
    np.testing.assert_allclose(found.scores, [255 / 256, 0.25, 0])


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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: DetectOptions(score=1.5), "score is 1.5; it must be from 0 to 1"),
        (lambda: YoloxOptions(iou=-0.1), "iou is -0.1; it must be from 0 to 1"),
        (lambda: SsdOptions(top=0), "top is 0; it must be at least 1"),
        (lambda: SsdOptions(first_class=-1), "first_class is -1; it must be at least 0"),
        (lambda: YoloxOptions(strides=()), "strides is empty; it must name the grids, e.g. [8, 16, 32]"),
        (lambda: YoloxOptions(strides=(8, 0)), "strides is 0; it must be at least 1"),
        (lambda: CenterfaceOptions(stride=0), "stride is 0; it must be at least 1"),
        (lambda: ClassifyOptions(scale=0), "scale is 0; it must be above 0"),
    ],
)
def test_options_out_of_bounds(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        make()
    assert str(error.value) == text
