"""Boxes relative to anchors (SSD, BlazeFace), by hand and against MediaPipe's steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.anchors import AnchorOptions, anchor_centres, anchors_for
from edgekit.tasks.detect.blazeface import BlazefaceOptions, detect_blazeface
from edgekit.tasks.detect.ssd import SsdOptions, detect_ssd
from edgekit.tasks.detect.ssd_anchors import SsdAnchorsOptions, detect_ssd_anchors

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(64, 32, 64, 32)  # the frame is the input


def test_ssd_boxes_are_fractions_of_the_input() -> None:
    boxes = np.array([[[[0.25, 0.5, 0.75, 1.0]], [[0, 0, 0.1, 0.1]]]], np.float32)
    scores = np.array([[[0.1, 0.9], [0.2, 0.1]]], np.float32)
    found = detect_ssd({"boxes": boxes, "scores": scores}, SsdOptions(first_class=1), WHOLE)
    assert found.boxes.tolist() == [[32, 8, 64, 24]]
    assert found.classes.tolist() == [2]
    np.testing.assert_allclose(found.scores, [0.9])


def test_boxes_go_to_the_frame_and_stay_in_it() -> None:
    placed = ImagePlacement(200, 100, 64, 32, 0.32, 0.16, 0, 8)  # half of the input's height is padding
    boxes = np.array([[[0.0, 0.0, 1.0, 0.5]]], np.float32)
    found = detect_ssd({"boxes": boxes, "scores": np.ones((1, 1, 1), np.float32)}, SsdOptions(), placed)
    np.testing.assert_allclose(found.boxes, [[0, 0, 100, 100]], rtol=1e-6)  # 64 / 0.32 = 200 tall in x


WHOLE_SSD_ANCHORS = ImagePlacement(300, 300, 300, 300)


def test_mobilenet_ssd_has_1917_anchors() -> None:
    """TensorFlow's at 300: grids of 19, 10, 5, 3, 2 and 1; 3 anchors a cell in the first, 6 in others."""
    anchors = anchors_for(AnchorOptions(), 300, 300)
    assert len(anchors) == 19 * 19 * 3 + (100 + 25 + 9 + 4 + 1) * 6 == 1917
    half = 0.5 / 19
    root = math.sqrt(2)
    first = [
        [half, half, 0.1, 0.1],
        [half, half, 0.2 * root, 0.2 / root],
        [half, half, 0.2 / root, 0.2 * root],
    ]
    np.testing.assert_allclose(anchors[:3], first, rtol=1e-6)
    # The last layer: scale 0.95, and the one more anchor's is the mean of it and 1.
    np.testing.assert_allclose(anchors[-6], [0.5, 0.5, 0.95, 0.95], rtol=1e-6)
    np.testing.assert_allclose(anchors[-1], [0.5, 0.5, math.sqrt(0.95), math.sqrt(0.95)], rtol=1e-6)
    second = 0.2 + 0.75 / 5
    np.testing.assert_allclose(anchors[1083 + 1], [0.05, 0.05, second * root, second / root], rtol=1e-6)


def test_layers_of_one_stride_share_their_cells() -> None:
    options = AnchorOptions(
        strides=(8, 16, 16), aspect_ratios=(1.0,), interpolated_ratio=0.0, reduce_lowest=False
    )
    anchors = anchors_for(options, 32, 16)
    assert len(anchors) == 4 * 2 + 2 * 1 * 2
    np.testing.assert_allclose(anchors[8:10, :2], [[0.25, 0.5]] * 2)  # both anchors of the first cell
    np.testing.assert_allclose(anchors[8:10, 2], [0.575, 0.95])


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "none"])
def test_a_box_relative_to_its_anchor(activation: str) -> None:
    boxes = np.zeros((1, 1917, 4), np.float32)
    scores = np.zeros((1, 1917, 3), np.float32)
    scores[:] = 0 if activation == "none" else [9, -9, -9]
    row = {"sigmoid": [-9, 0, 2], "softmax": [0, 0, 9], "none": [0, 0.2, 0.9]}[activation]
    scores[0, -6] = np.array(row)
    boxes[0, -6] = [1, -1, 5 * math.log(0.5), 0]  # y, x, height, width
    options = SsdAnchorsOptions(activation=activation, first_class=1)
    found = detect_ssd_anchors({"boxes": boxes, "scores": scores}, options, WHOLE_SSD_ANCHORS)
    centre_x, centre_y = 0.5 - 0.095, 0.5 + 0.095
    box = [centre_x - 0.475, centre_y - 0.2375, centre_x + 0.475, centre_y + 0.2375]
    np.testing.assert_allclose(found.boxes, np.clip([box], 0, 1) * 300, atol=1e-3)
    assert found.classes.tolist() == [2]
    expected = {"sigmoid": 1 / (1 + math.exp(-2)), "softmax": 1 / (1 + 2 * math.exp(-9)), "none": 0.9}
    assert found[0].score == pytest.approx(expected[activation])


def test_no_background() -> None:
    boxes, scores = np.zeros((1, 1917, 4), np.float32), np.full((1, 1917, 2), -9, np.float32)
    scores[0, 0, 0] = 9
    found = detect_ssd_anchors(
        {"boxes": boxes, "scores": scores}, SsdAnchorsOptions(background=False), WHOLE_SSD_ANCHORS
    )
    assert found.classes.tolist() == [0]
    assert (
        len(detect_ssd_anchors({"boxes": boxes, "scores": scores}, SsdAnchorsOptions(), WHOLE_SSD_ANCHORS))
        == 0
    )


WHOLE_BLAZEFACE = ImagePlacement(128, 128, 128, 128)


def blazeface_outputs(boxes: int = 896) -> dict[str, Array]:
    values = np.zeros((1, boxes, 16), np.float32)
    return {"boxes": values, "scores": np.full((1, boxes, 1), -9, np.float32)}


def test_a_face_relative_to_its_anchor() -> None:
    outputs = blazeface_outputs()
    # Row 512 + 6 (8 + 3): the second grid's cell x = 3, y = 1, whose middle is 56, 24.
    outputs["boxes"][0, 512 + 66] = [4, -2, 20, 30, *range(12)]
    outputs["scores"][0, 512 + 66] = 2
    found = detect_blazeface(outputs, BlazefaceOptions(), WHOLE_BLAZEFACE, ["face"])
    np.testing.assert_allclose(found.boxes, [[50, 7, 70, 37]])
    assert found.landmarks is not None
    np.testing.assert_allclose(found.landmarks[0], [[56 + 2 * i, 25 + 2 * i] for i in range(6)])
    assert found[0].score == pytest.approx(1 / (1 + np.exp(-2)))
    assert found[0].label == "face"


@pytest.mark.parametrize(
    ("strides", "anchors", "size", "boxes"),
    [
        ((8, 16, 16, 16), 2, 128, 896),
        ((4,), 1, 192, 2304),
        ((8, 16, 16, 16), 2, 192, 2016),
        ((8, 16, 32, 32, 32), 2, 224, 2254),
    ],
    ids=["short range", "full range", "palms", "persons"],
)
def test_anchors_of_mediapipes_detectors(
    strides: tuple[int, ...], anchors: int, size: int, boxes: int
) -> None:
    assert anchor_centres(strides, anchors, size, size).shape == (boxes, 2)
    outputs = blazeface_outputs(boxes)
    outputs["scores"][0, -1] = 1
    placed = ImagePlacement(size, size, size, size)
    assert len(detect_blazeface(outputs, BlazefaceOptions(strides=strides, anchors=anchors), placed)) == 1


def test_weighted_nms_is_mediapipes() -> None:
    rng = np.random.default_rng(0)
    outputs = blazeface_outputs()
    rows = rng.choice(512, 40, replace=False)
    outputs["boxes"][0, rows] = rng.normal(0, 6, (40, 16))
    outputs["boxes"][0, rows, 2:4] = rng.uniform(20, 50, (40, 2))
    outputs["scores"][0, rows, 0] = rng.normal(1, 1, 40)
    centres = anchor_centres((8, 16, 16, 16), 2, 128, 128) * 128
    rest = []
    for row in rows:
        score = 1 / (1 + np.exp(-float(outputs["scores"][0, row, 0])))
        x, y, w, h = (float(v) for v in outputs["boxes"][0, row, :4])
        left, top = centres[row] + [x - w / 2, y - h / 2]
        if score >= 0.5:
            rest.append((score, np.array([left, top, left + w, top + h], np.float64)))
    rest.sort(key=lambda one: -one[0])
    expected = []
    while rest:
        best = rest[0]
        group = [one for one in rest if overlap(one[1], best[1]) > 0.3]
        rest = [one for one in rest if overlap(one[1], best[1]) <= 0.3]
        mean = sum(score * box for score, box in group) / sum(score for score, _ in group)
        expected.append((best[0], mean))
    found = detect_blazeface(outputs, BlazefaceOptions(), ImagePlacement(128, 128, 128, 128))
    assert 3 < len(expected) < 30
    np.testing.assert_allclose(found.scores, [one[0] for one in expected], rtol=1e-5)
    np.testing.assert_allclose(found.boxes, np.clip([one[1] for one in expected], 0, 128), atol=1e-3)


def overlap(one: Array, other: Array) -> float:
    wide, high = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    shared = max(0.0, wide) * max(0.0, high)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return float(shared / (sum(areas) - shared))


def test_boxes_without_area_and_at_most_top() -> None:
    outputs = blazeface_outputs()
    outputs["scores"][0, [3, 99]] = [[300], [2]]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = detect_blazeface(outputs, BlazefaceOptions(), WHOLE_BLAZEFACE)
    assert found.scores.tolist() == pytest.approx([1, 1 / (1 + np.exp(-2))])
    assert len(detect_blazeface(outputs, BlazefaceOptions(top=1), WHOLE_BLAZEFACE)) == 1
