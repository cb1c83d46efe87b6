"""BlazeFace's outputs by hand, and weighted NMS against MediaPipe's steps box by box."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect.anchors import anchor_centres
from edgekit.tasks.detect.blazeface import BlazefaceOptions, detect_blazeface

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(128, 128, 128, 128)


def blazeface_outputs(boxes: int = 896) -> dict[str, Array]:
    values = np.zeros((1, boxes, 16), np.float32)
    return {"boxes": values, "scores": np.full((1, boxes, 1), -9, np.float32)}


def test_a_face_relative_to_its_anchor() -> None:
    outputs = blazeface_outputs()
    # Row 512 + 6 (8 + 3): the second grid's cell x = 3, y = 1, whose middle is 56, 24.
    outputs["boxes"][0, 512 + 66] = [4, -2, 20, 30, *range(12)]
    outputs["scores"][0, 512 + 66] = 2
    found = detect_blazeface(outputs, BlazefaceOptions(), WHOLE, ["face"])
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
        found = detect_blazeface(outputs, BlazefaceOptions(), WHOLE)
    assert found.scores.tolist() == pytest.approx([1, 1 / (1 + np.exp(-2))])
    assert len(detect_blazeface(outputs, BlazefaceOptions(top=1), WHOLE)) == 1


def test_other_forms_are_refused() -> None:
    with pytest.raises(EngineError) as error:
        detect_blazeface(blazeface_outputs(100), BlazefaceOptions(), WHOLE)
    assert str(error.value) == (
        "the output has 100 boxes, but the card's anchors on an input of 128x128 are 896; correct strides "
        "or anchors in the card"
    )
    with pytest.raises(EngineError) as error:
        detect_blazeface({**blazeface_outputs(), "scores": np.zeros((1, 896, 2))}, BlazefaceOptions(), WHOLE)
    assert str(error.value) == (
        "boxes is [1, 896, 16] and scores [1, 896, 2]; blazeface "
        "decodes [1, boxes, 4 + 2 keypoints] and [1, boxes, 1]"
    )
