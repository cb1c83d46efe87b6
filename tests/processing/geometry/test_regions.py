"""Regions of a mask: components and their outlines, filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.geometry.components import connected_components
from edgekit.processing.geometry.filled import quadrilateral_means

Array = npt.NDArray[Any]


def painted(mask: Array) -> Array:
    """The component of each pixel, -1 where the mask is clear: by our runs."""
    runs = connected_components(mask)
    image = np.full(mask.shape, -1)
    for row, first, last, component in zip(*runs[:4], strict=True):
        image[row, first : last + 1] = component
    return image


def flooded(mask: Array) -> Array:
    """The same by a flood fill from each pixel that has no number yet, in reading order."""
    image, count = np.full(mask.shape, -1), 0
    for start in np.argwhere(mask).tolist():
        if image[tuple(start)] >= 0:
            continue
        waiting = [start]
        while waiting:
            y, x = waiting.pop()
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1] and mask[y, x] and image[y, x] < 0:
                image[y, x] = count
                waiting += [[y + dy, x + dx] for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        count += 1
    return image


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 24), st.integers(1, 24), st.floats(0, 1), st.integers(0, 999))
def test_components_are_those_of_a_flood_fill(height: int, width: int, share: float, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    np.testing.assert_array_equal(painted(mask), flooded(mask))


def test_a_spiral_is_one_component() -> None:
    mask = np.zeros((41, 41), np.bool_)
    y = x = 20
    for step in range(20):  # arms of growing length, each a turn to the left
        dy, dx = [(0, 1), (-1, 0), (0, -1), (1, 0)][step % 4]
        for _ in range(2 * (step // 2 + 1)):
            mask[y, x] = True
            y, x = y + dy, x + dx
    assert connected_components(mask).total == 1
    assert connected_components(~mask).total >= 1


@pytest.mark.parametrize("value", [False, True])
def test_empty_and_full_masks(value: bool) -> None:
    runs = connected_components(np.full((3, 5), value))
    assert runs.total == int(value)
    assert runs.row.tolist() == ([0, 1, 2] if value else [])


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
