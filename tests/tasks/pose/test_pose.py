"""YOLO-pose's and MoveNet's outputs made by hand, and what they must decode to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.pose.movenet import MovenetOptions, pose_movenet, pose_movenet_multipose
from edgekit.tasks.pose.skeleton import COCO_KEYPOINTS, COCO_SKELETON
from edgekit.tasks.pose.yolo import PoseEnd2EndOptions, PoseOptions, pose_end2end, pose_yolov8

HALF = ImagePlacement(128, 64, 64, 32, 0.5, 0.5)  # the frame has twice the input's size


def test_yolov8_pose() -> None:
    output = np.zeros((1, 4 + 1 + 2 * 3, 40), np.float32)
    output[0, :, 3] = [20, 10, 8, 4, 0.5, 18, 9, 0.9, 24, 12, 0.1]
    output[0, :, 4] = [20, 10, 8, 4, 0.8, 19, 9, 0.7, 70, 12, 0.2]  # the same person, and a point outside
    options = PoseOptions(keypoints=("head", "tail"), skeleton=((0, 1),))
    found = pose_yolov8({"predictions": output}, options, HALF, ["cat"])
    assert found.points.tolist() == [[[38, 18], [128, 24]]]
    assert found.boxes is not None
    assert found.boxes.tolist() == [[32, 16, 48, 24]]
    assert found.point_scores is not None
    np.testing.assert_allclose(found.point_scores, [[0.7, 0.2]])
    assert found[0].label == "cat"
    assert found[0].score == pytest.approx(0.8)
    assert (found.names, found.skeleton) == (("head", "tail"), ((0, 1),))


def test_more_classes_leave_fewer_keypoints() -> None:
    """8 columns after the box: one class and 7 numbers fit no keypoints; two classes and two keypoints do."""
    output = np.zeros((1, 12, 40), np.float32)
    output[0, :, 3] = [20, 10, 8, 4, 0.1, 0.8, 18, 9, 1, 24, 12, 1]
    found = pose_yolov8({"predictions": output}, PoseOptions(), HALF, ["cat", "dog"])
    assert (found[0].label, len(found[0].points), found.names) == ("dog", 2, ())
    with pytest.raises(EngineError) as error:
        pose_yolov8({"predictions": output}, PoseOptions(), HALF, ["cat"])
    assert str(error.value) == (
        "the output is [1, 12, 40], and no number of keypoints with 3 dimensions fits; "
        "correct labels or dimensions in the card"
    )


def test_keypoints_without_scores() -> None:
    output = np.zeros((1, 9, 40), np.float32)
    output[0, :, 3] = [20, 10, 8, 4, 0.8, 18, 9, 24, 12]
    found = pose_yolov8({"predictions": output}, PoseOptions(dimensions=2), HALF)
    assert found.points.tolist() == [[[36, 18], [48, 24]]]
    assert found.point_scores is None


@pytest.mark.parametrize("normalized", [False, True])
def test_end2end_pose_of_coco(normalized: bool) -> None:
    size = np.array([64, 32]) if normalized else np.ones(2)
    rows = np.zeros((1, 300, 6 + 17 * 3), np.float32)
    points = np.stack([np.arange(17), np.arange(17) + 2, np.full(17, 0.5)], axis=1)
    points[:, :2] /= size
    rows[0, 4] = np.concatenate([[0, 2, 16, 18] / np.tile(size, 2), [0.9, 0], points.ravel()])
    options = PoseEnd2EndOptions(normalized=normalized)
    found = pose_end2end({"predictions": rows}, options, HALF, ["person"])
    np.testing.assert_allclose(found.points[0], np.stack([np.arange(17), np.arange(17) + 2], axis=1) * 2)
    assert found.boxes is not None
    np.testing.assert_allclose(found.boxes, [[0, 4, 32, 36]])
    assert (found.names, tuple(found.skeleton)) == (COCO_KEYPOINTS, COCO_SKELETON)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dimensions": 4}, "dimensions is 4; it must be 2 (x, y) or 3 (x, y, score)"),
        (
            {"keypoints": ("a", "b"), "skeleton": ((0, 2),)},
            "skeleton has [0, 2]; the card names 2 keypoints",
        ),
        ({"skeleton": ((0, -1),)}, "skeleton has [0, -1]; the card names 0 keypoints"),
    ],
)
def test_options_out_of_bounds(options: Any, text: str) -> None:
    for kind in (PoseOptions, PoseEnd2EndOptions):
        with pytest.raises(ValueError, match=r"must|names") as error:
            kind(**options)
        assert str(error.value) == text


def test_names_must_be_as_many_as_keypoints() -> None:
    rows = np.zeros((1, 300, 6 + 17 * 3), np.float32)
    with pytest.raises(EngineError) as error:
        pose_end2end({"predictions": rows}, PoseEnd2EndOptions(keypoints=("nose",)), HALF)
    assert str(error.value) == (
        "the output has 17 keypoints, but the card names 1; correct keypoints in the card"
    )


PLACED = ImagePlacement(200, 100, 100, 100, 0.5, 0.5, 0, 25)  # letterboxed, in the middle


def test_movenet_single() -> None:
    points = np.zeros((1, 1, 17, 3), np.float32)
    points[0, 0, :, :2] = [0.5, 0.25]  # y, x
    points[0, 0, 3] = [0.75, 0.5, 0.8]
    points[0, 0, 4] = [0.25, 0.75, 0.4]
    found = pose_movenet({"keypoints": points}, MovenetOptions(), PLACED)
    assert found.points[0, 3].tolist() == [100, 100]
    assert found.points[0, 4].tolist() == [150, 0]
    assert found.boxes is not None
    assert found.boxes.tolist() == [[50, 0, 150, 100]]
    assert found[0].score == pytest.approx(0.6)  # the mean of the two above 0.1
    assert found[0].label == "person"
    assert found.names[3] == "left ear"
    assert len(pose_movenet({"keypoints": points}, MovenetOptions(score=0.61), PLACED)) == 0
    assert len(pose_movenet({"keypoints": points * 0}, MovenetOptions(), PLACED)) == 0


def test_movenet_multipose() -> None:
    rows = np.zeros((1, 6, 56), np.float32)
    rows[0, 1, :6] = [0.5, 0.25, 0.9, 0.75, 0.5, 0.8]
    rows[0, 1, 51:] = [0.25, 0.1, 0.75, 0.9, 0.5]  # y1, x1, y2, x2, score
    rows[0, 2, -1] = 0.7
    found = pose_movenet_multipose({"predictions": rows}, MovenetOptions(), PLACED, ["dancer"])
    np.testing.assert_allclose(found.scores, [0.7, 0.5])
    np.testing.assert_allclose(found.points[1, :2], [[50, 50], [100, 100]])
    assert found.boxes is not None
    np.testing.assert_allclose(found.boxes[1], [20, 0, 180, 100], atol=1e-4)
    assert found.point_scores is not None
    np.testing.assert_allclose(found.point_scores[1, :2], [0.9, 0.8])
    assert found[0].label == "dancer"
