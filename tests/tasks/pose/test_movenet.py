"""MoveNet's outputs made by hand, and what they must decode to."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.pose.movenet import MovenetOptions, pose_movenet, pose_movenet_multipose

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
