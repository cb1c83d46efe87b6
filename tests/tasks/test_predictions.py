"""Predictions as text and JSON."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.segment_instances import Instances, rle_counts, rle_text

POINTS = np.array([[[1, 2], [30.456, 4]], [[5, 6], [7, 8]]], np.float32)


def test_keypoints_with_all_that_a_model_may_give() -> None:
    found = Keypoints(
        POINTS,
        np.array([0.9, 0.5], np.float32),
        np.array([1, 0]),
        ["cat", "person"],
        np.array([[0, 1, 40, 50], [4, 5, 8, 9]], np.float32),
        np.array([[0.75, 0.25], [0.5, 0.5]], np.float32),
        np.array([[-1.5, 0], [0, 2]], np.float32),
        ["nose", "tail"],
        [(0, 1)],
    )
    assert str(found) == (
        "person  0.900  0,1 to 40,50  2 keypoints, 1 visible\n"
        "cat     0.500  4,5 to 8,9  2 keypoints, 2 visible"
    )
    assert found.as_json()[0] == {
        "index": 1,
        "label": "person",
        "score": 0.9,
        "box": [0.0, 1.0, 40.0, 50.0],
        "keypoints": {"nose": [1.0, 2.0, 0.75, -1.5], "tail": [30.46, 4.0, 0.25, 0.0]},
    }
    assert found[1].points == ((5.0, 6.0), (7.0, 8.0))
    assert found[1].depths == (0.0, 2.0)
    assert [one.label for one in found] == ["person", "cat"]


def test_keypoints_alone() -> None:
    found = Keypoints(POINTS, np.array([0.9, 0.5], np.float32))
    assert str(found).splitlines()[0] == "0  0.900  1,2 to 30,4  2 keypoints"
    assert found.as_json()[1] == {"index": 0, "label": "0", "score": 0.5, "keypoints": [[5, 6], [7, 8]]}
    assert found[0].box is None


def test_nothing_found() -> None:
    found = Keypoints(np.zeros((0, 17, 2), np.float32), np.zeros(0, np.float32))
    assert (len(found), list(found), str(found), found.as_json()) == (0, [], "nothing found", [])


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


def test_instances_read_as_text_and_json() -> None:
    crop = np.array([[True, False], [True, True]])
    found = Instances(
        np.array([[1, 2, 3, 4]], np.float32),
        np.array([0.5], np.float32),
        np.array([1]),
        [crop],
        np.array([[1, 2]]),
        6,
        5,
        ["cat", "dog"],
    )
    assert str(found) == "dog  0.500  1,2 to 3,4  3 pixels"
    assert found.mask(0).sum() == 3
    assert np.argwhere(found.mask(0)).tolist() == [[2, 1], [3, 1], [3, 2]]
    assert found.as_json() == [
        {
            "index": 1,
            "label": "dog",
            "score": 0.5,
            "box": [1.0, 2.0, 3.0, 4.0],
            "area": 3,
            "mask": {"size": [5, 6], "counts": rle_text([7, 2, 4, 1, 16])},
        }
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(0, 1000), st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0])
)
def test_rle_is_pycocotools(height: int, width: int, seed: int, share: float) -> None:
    mask = pytest.importorskip("pycocotools.mask")
    made = np.random.default_rng(seed).random((height, width)) < share
    text = rle_text(rle_counts(made)).encode()
    assert text == mask.encode(np.asfortranarray(made.astype(np.uint8)))["counts"]
    np.testing.assert_array_equal(mask.decode({"size": [height, width], "counts": text}), made)
