"""Planes of an output at the frame's pixels, against OpenCV and Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import content, linear_to_frame, nearest_to_frame, planes_of
from edgekit.processing.predictions.image_placement import ImagePlacement

Array = npt.NDArray[Any]
SIZE = st.integers(1, 70)


def stretched(width: int, height: int, columns: int, rows: int) -> ImagePlacement:
    """A frame that fills an input, of which an output has ``columns`` x ``rows`` cells."""
    return ImagePlacement(width, height, columns * 4, rows * 4, columns * 4 / width, rows * 4 / height)


@settings(max_examples=80, deadline=None)
@given(SIZE, SIZE, SIZE, SIZE, st.integers(0, 99))
def test_linear_is_opencvs(width: int, height: int, columns: int, rows: int, seed: int) -> None:
    cv2 = pytest.importorskip("cv2")
    planes = np.random.default_rng(seed).normal(0, 1, (2, rows, columns)).astype(np.float32)
    found = linear_to_frame(planes, stretched(width, height, columns, rows))
    assert found.dtype == np.float32
    for plane, ours in zip(planes, found, strict=True):
        expected = cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR)
        np.testing.assert_allclose(ours, expected, atol=2e-5)


@settings(max_examples=60, deadline=None)
@given(SIZE, SIZE, SIZE, SIZE, st.integers(0, 99))
def test_nearest_is_pillows(width: int, height: int, columns: int, rows: int, seed: int) -> None:
    pillow = pytest.importorskip("PIL.Image")
    plane = np.random.default_rng(seed).integers(0, 256, (rows, columns), dtype=np.uint8)
    found = nearest_to_frame(plane, stretched(width, height, columns, rows))
    expected = np.asarray(pillow.fromarray(plane).resize((width, height), pillow.Resampling.NEAREST))
    same = (found == expected).mean()
    assert same == 1 or columns % width or rows % height  # a centre on the border of two cells: either


def test_the_padding_does_not_count() -> None:
    """A frame of 8x4 in an input of 8x8, two rows of padding above it and two below."""
    placed = ImagePlacement(8, 4, 8, 8, 1, 1, 0, 2)
    plane = np.full((4, 4), -9, np.float32)
    plane[1:3] = [[1, 1, 1, 1], [2, 2, 2, 2]]
    assert content(placed, plane.shape) == (slice(1, 3), slice(0, 4))
    found = linear_to_frame(plane[None], placed)[0]
    np.testing.assert_allclose(found[:, 0], [1, 1.25, 1.75, 2])
    assert nearest_to_frame(plane, placed)[:, 0].tolist() == [1, 1, 2, 2]


def test_a_cropped_frame_is_continued_beyond_the_crop() -> None:
    placed = ImagePlacement(8, 4, 4, 4, 1, 1, -2, 0)  # columns 2 to 5 went into the input
    plane = np.arange(4, dtype=np.float32)[None].repeat(4, axis=0)
    assert linear_to_frame(plane[None], placed)[0, 0].tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


def test_layouts() -> None:
    output = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(planes_of(output, "NCHW", "x"), output[0])
    np.testing.assert_array_equal(planes_of(output.transpose(0, 2, 3, 1), "NHWC", "x"), output[0])
    assert planes_of(output[:, 0], "NCHW", "x").shape == (1, 3, 4)  # [1, h, w]
    assert planes_of(output[0, 0], "NHWC", "x").shape == (1, 3, 4)  # [h, w]
    for layout, shape in (("NCHW", "[1, channels, height, width]"), ("NHWC", "[1, height, width, channels]")):
        with pytest.raises(EngineError) as error:
            planes_of(np.zeros((2, 3, 4, 5)), layout, "a mask")
        assert str(error.value) == f"a mask is {shape}, but the output is [2, 3, 4, 5]"
