"""Keypoints as text and JSON."""

from __future__ import annotations

import numpy as np

from edgekit.processing.predictions.pose import Keypoints

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
