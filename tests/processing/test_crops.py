"""Crops of a frame, and the way back into it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.cascade import CascadeStage
from edgekit.processing.crops import cut, in_frame
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.detect_text import TextRegions
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.tensor_spec import Array

FRAME = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)


def boxes(
    *rows: list[float], scores: list[float] | None = None, classes: list[int] | None = None
) -> Detections:
    count = len(rows)
    return Detections(
        np.array(rows, np.float32),
        np.array(scores or [0.9] * count, np.float32),
        np.array(classes or [0] * count),
        ["cat", "dog"],
    )


def only(found: Any, **options: Any) -> Any:
    (crop,) = cut(FRAME, found, CascadeStage("s", **options))
    return crop


def back(crop: Any, *points: tuple[float, float]) -> list[list[float]]:
    moved: Array = crop.to_frame(np.array(points, np.float32))
    return [[round(float(value), 3) for value in row] for row in moved]


def test_a_box_is_cut_out() -> None:
    crop = only(boxes([10, 20, 30, 50]))
    np.testing.assert_array_equal(crop.pixels, FRAME[20:50, 10:30])
    assert back(crop, (0, 0), (20, 30)) == [[10, 20], [30, 50]]


def test_a_margin_is_part_of_the_longer_side_and_ends_at_the_frame() -> None:
    crop = only(boxes([10, 2, 30, 42]), margin=0.1)
    np.testing.assert_array_equal(crop.pixels, FRAME[0:46, 6:34])
    assert back(crop, (0, 0)) == [[6, 0]]


def test_a_square_goes_on_in_black_beyond_the_frame() -> None:
    crop = only(boxes([0, 10, 10, 50]), square=True)
    assert crop.pixels.shape == (40, 40, 3)
    np.testing.assert_array_equal(crop.pixels[:, 15:], FRAME[10:50, 0:25])
    assert not crop.pixels[:, :15].any()
    assert back(crop, (15, 0)) == [[0, 10]]


def test_what_lies_outside_is_left_out() -> None:
    assert cut(FRAME, boxes([90, 10, 100, 20], [5, 5, 5, 5]), CascadeStage("s")) == []


def test_the_best_of_the_wanted_ones_in_their_order() -> None:
    found = boxes(
        [0, 0, 9, 9], [10, 0, 19, 9], [20, 0, 29, 9], [30, 0, 39, 9],
        scores=[0.5, 0.9, 0.7, 0.1], classes=[1, 0, 1, 1],
    )  # fmt: skip
    assert [c.index for c in cut(FRAME, found, CascadeStage("s", classes=("dog",)))] == [0, 2, 3]
    assert [c.index for c in cut(FRAME, found, CascadeStage("s", score=0.6))] == [1, 2]
    assert [c.index for c in cut(FRAME, found, CascadeStage("s", most=2))] == [1, 2]


def test_corners_are_made_upright() -> None:
    corners = np.array(
        [[[30, 10], [30, 40], [10, 40], [10, 10]]], np.float32
    )  # turned clockwise by a quarter
    crop = only(TextRegions(corners, np.array([0.9], np.float32)), crop="corners")
    assert crop.pixels.shape == (20, 30, 3)
    assert back(crop, (0, 0), (30, 0), (30, 20)) == [[30, 10], [30, 40], [10, 40]]


def test_oriented_boxes_are_cut_by_their_corners_or_the_box_around_them() -> None:
    one = np.array([[40, 30, 20, 10, np.pi / 2]], np.float32)  # 10 wide and 20 high
    found = OrientedDetections(one, np.array([0.9], np.float32), np.array([0]))
    assert only(found).pixels.shape == (20, 10, 3)
    assert only(found, crop="corners").pixels.shape == (10, 20, 3)


@pytest.mark.parametrize("quarters", [0, 1, 2, 3, 4])
def test_turning_and_back(quarters: int) -> None:
    crop = only(boxes([10, 20, 30, 50]))
    turned = crop.rotated(quarters)
    np.testing.assert_array_equal(turned.pixels, np.rot90(crop.pixels, quarters))
    # Each pixel's centre goes back to where that pixel is in the frame.
    for x, y in ((0, 0), (5, 3), (turned.pixels.shape[1] - 1, turned.pixels.shape[0] - 1)):
        ((u, v),) = back(turned, (x + 0.5, y + 0.5))
        np.testing.assert_array_equal(FRAME[int(v), int(u)], turned.pixels[y, x])


def test_predictions_go_back_into_the_frame() -> None:
    crop = only(boxes([10, 20, 30, 50]))
    inner = in_frame(boxes([1, 2, 3, 4]), crop)
    assert inner.boxes.tolist() == [[11, 22, 13, 24]]
    points = Keypoints(np.array([[[1, 2]]], np.float32), np.array([0.9], np.float32))
    assert in_frame(points, crop).points.tolist() == [[[11, 22]]]
    classes = Classes(np.array([0]), np.array([0.9], np.float32))
    assert in_frame(classes, crop) is classes
    nothing = boxes([1, 2, 3, 4])
    empty = Detections(nothing.boxes[:0], nothing.scores[:0], nothing.classes[:0])
    assert in_frame(empty, crop).boxes.shape == (0, 4)


def test_a_prediction_without_places() -> None:
    found = Classes(np.array([0]), np.array([0.9], np.float32))
    with pytest.raises(EngineError) as error:
        cut(FRAME, found, CascadeStage("s"))
    assert str(error.value) == (
        "stage s: the first stage predicts Classes, which has no regions to crop; use a detector"
    )


@pytest.mark.parametrize("crop", ["box", "corners"])
def test_a_thing_far_beyond_the_frame_is_left_out(crop: str) -> None:
    """Its place is the model's output: a crop of it would take gigabytes."""
    far = np.array([[40, 30, 50_000, 50_000, 0.3]], np.float32)
    found = OrientedDetections(far, np.array([0.9], np.float32), np.array([0]))
    options: dict[str, Any] = {"square": True} if crop == "box" else {}
    assert cut(FRAME, found, CascadeStage("s", crop=crop, **options)) == []
