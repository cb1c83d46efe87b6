"""Crops of quadrilaterals, against OpenCV's warpPerspective."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.processing.geometry.warp import Interpolation, crop_corners, crop_text, perspective

Array = npt.NDArray[Any]


def frame(width: int, height: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9999), width=st.integers(1, 60), height=st.integers(1, 40))
def test_a_crop_is_opencvs_within_one_level(
    interpolation: Interpolation, seed: int, width: int, height: int
) -> None:
    """OpenCV before 5 places pixels on a grid of 1/32."""
    cv2 = pytest.importorskip("cv2", minversion="5")
    picture = frame(90, 60, seed)
    spread = np.random.default_rng(seed).uniform(-7, 7, (4, 2))
    corners = (np.array([[20, 15], [75, 15], [75, 45], [20, 45]]) + spread).astype(np.float32)
    goal = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    expected = cv2.warpPerspective(
        picture,
        cv2.getPerspectiveTransform(corners, goal),
        (width, height),
        flags=cv2.INTER_LINEAR if interpolation == "linear" else cv2.INTER_CUBIC,
        borderMode=cv2.BORDER_REPLICATE,
    )
    found = crop_corners(picture, corners, width, height, interpolation=interpolation)
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_an_upright_crop_is_the_pixels_themselves() -> None:
    picture = frame(40, 30)
    found = crop_corners(picture, np.array([[5, 4], [25, 4], [25, 16], [5, 16]]))
    np.testing.assert_array_equal(found, picture[4:16, 5:25])


def test_a_large_crop_is_made_in_parts() -> None:
    picture = frame(300, 200)
    found = crop_corners(picture, np.array([[0, 0], [300, 0], [300, 200], [0, 200]]))
    np.testing.assert_array_equal(found, picture)


def test_beyond_the_frame_its_edge_goes_on() -> None:
    picture = frame(8, 6)
    found = crop_corners(picture, np.array([[-5, 0], [8, 0], [8, 6], [-5, 6]]))
    np.testing.assert_array_equal(found[:, :5], np.repeat(picture[:, :1], 5, axis=1))
    np.testing.assert_array_equal(found[:, 5:], picture)


def test_text_on_its_side_is_turned() -> None:
    picture = frame(40, 60)
    found = crop_text(picture, np.array([[10, 5], [20, 5], [20, 45], [10, 45]]))
    np.testing.assert_array_equal(found, np.rot90(picture[5:45, 10:20]))
    assert found.flags.c_contiguous
    upright = crop_text(picture, np.array([[10, 5], [20, 5], [20, 19], [10, 19]]))  # less than TALL
    np.testing.assert_array_equal(upright, picture[5:19, 10:20])


def test_the_matrix_takes_four_points_to_four() -> None:
    source = np.array([[0, 0], [4, 0], [4, 3], [0, 3]], float)
    target = np.array([[1, 1], [9, 2], [8, 7], [0, 6]], float)
    x, y, w = perspective(source, target) @ np.concatenate([source.T, np.ones((1, 4))])
    np.testing.assert_allclose(np.stack([x / w, y / w], axis=1), target, atol=1e-9)


@pytest.mark.parametrize("corners", [[[0, 0]] * 4, [[0, 0], [10, 10], [10, 0], [0, 10]]])
def test_corners_that_enclose_nothing(corners: list[list[float]]) -> None:
    """All are one, or the sides cross."""
    with pytest.raises(UsageError) as error:
        crop_corners(frame(20, 20), np.array(corners, float))
    exact = [[float(x), float(y)] for x, y in corners]
    assert str(error.value) == f"corners {exact} enclose an empty area"


@pytest.mark.parametrize("shift", [-40, -9, -2, 0, 3, 8, 30])
def test_wherever_the_corners_are(shift: int) -> None:
    """Beside the frame there is its edge, on all sides."""
    cv2 = pytest.importorskip("cv2", minversion="5")
    picture = frame(8, 6)
    for x, y in ((shift, 0), (0, shift), (shift, shift)):
        corners = np.array([[x, y], [x + 9, y], [x + 9, y + 4], [x, y + 4]], np.float32)
        around = cv2.copyMakeBorder(picture, 60, 60, 60, 60, cv2.BORDER_REPLICATE)
        expected = around[y + 60 : y + 64, x + 60 : x + 69]
        np.testing.assert_array_equal(crop_corners(picture, corners), expected)
