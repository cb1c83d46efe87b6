"""Means within quadrilaterals, against OpenCV's fillPoly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.geometry.filled import quadrilateral_means

Array = npt.NDArray[Any]


def rectangle(x: float, y: float, width: float, height: float, angle: float) -> Array:
    cos, sin = np.cos(angle), np.sin(angle)
    corners = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    turned: Array = corners @ np.array([[cos, sin], [-sin, cos]]) + np.array([x, y])
    return turned


@settings(max_examples=100, deadline=None)
@given(
    st.floats(25, 40),
    st.floats(25, 40),
    st.floats(3, 22),
    st.floats(3, 22),
    st.floats(0, 3),
    st.integers(0, 99),
)
def test_means_are_those_of_fill_poly(
    x: float, y: float, width: float, height: float, angle: float, seed: int
) -> None:
    cv2 = pytest.importorskip("cv2")
    values = np.random.default_rng(seed).random((64, 70)).astype(np.float32)
    corners = np.round(rectangle(x, y, width, height, angle), 3)
    least = np.floor(corners.min(axis=0))
    mask = np.zeros(values.shape, np.uint8)
    cv2.fillPoly(mask, (np.trunc(corners - least) + least).astype(np.int32)[None], 1)
    expected = cv2.mean(values, mask)[0]
    assert quadrilateral_means(values, corners[None])[0] == pytest.approx(expected, abs=1e-6)


def test_what_is_outside_does_not_count() -> None:
    values = np.ones((10, 10), np.float32)
    values[:, 5:] = 0
    boxes = np.array([[[-20, 2], [4, 2], [4, 6], [-20, 6]], [[3, -9], [6, -9], [6, 30], [3, 30]]], float)
    np.testing.assert_allclose(quadrilateral_means(values, boxes), [1, 0.5])


def test_corners_that_floats_miss_by_little_are_whole() -> None:
    values = np.random.default_rng(0).random((20, 20)).astype(np.float32)
    exact = np.array([[[3, 4], [15, 4], [15, 11], [3, 11]]], float)
    np.testing.assert_array_equal(
        quadrilateral_means(values, exact - 1e-5), quadrilateral_means(values, exact)
    )


def test_nothing_to_fill() -> None:
    assert quadrilateral_means(np.ones((4, 4), np.float32), np.zeros((0, 4, 2))).tolist() == []
