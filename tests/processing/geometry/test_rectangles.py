"""Hulls and smallest rectangles, against OpenCV's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.processing.geometry.rectangles import enlarge, hulls, in_order, smallest_rectangles

Array = npt.NDArray[Any]


def hull_of(points: Array) -> Array:
    hull: Array = hulls(points[:, 0], points[:, 1], np.zeros(len(points), np.int64), 1)[0]
    return hull


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 60), st.integers(2, 40), st.integers(0, 999))
def test_the_rectangle_has_opencvs_area(count: int, size: int, seed: int) -> None:
    cv2 = pytest.importorskip("cv2")
    points = np.random.default_rng(seed).integers(0, size, (count, 2))
    corners, side = smallest_rectangles(hull_of(points)[None])
    _, (wide, high), _ = cv2.minAreaRect(points.astype(np.int32))
    sides = np.linalg.norm(np.roll(corners[0], -1, axis=0) - corners[0], axis=1)
    assert sides[0] * sides[1] == pytest.approx(wide * high, abs=1e-2, rel=1e-4)
    assert side[0] == pytest.approx(min(sides), abs=1e-9)
    # Every point lies within: the areas of the triangles with the four sides add up to the rectangle's.
    after = np.roll(corners[0], -1, axis=0) - corners[0]
    to_points = points[:, None] - corners[0]
    crossed = after[:, 0] * to_points[..., 1] - after[:, 1] * to_points[..., 0]
    assert (crossed >= -1e-6).all() or (crossed <= 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 999))
def test_hulls_are_opencvs(count: int, size: int, seed: int) -> None:
    cv2 = pytest.importorskip("cv2")
    points = np.random.default_rng(seed).integers(0, size, (count, 2))
    expected = cv2.convexHull(points.astype(np.int32)).reshape(-1, 2)
    found = np.unique(hull_of(points), axis=0)
    np.testing.assert_array_equal(found, np.unique(expected, axis=0))


def test_many_hulls_at_once_are_the_same_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 30, (n, 2)) for n in (3, 40, 7, 1)]
    points, owner = np.concatenate(groups), np.repeat(np.arange(4), [len(g) for g in groups])
    shuffled = rng.permutation(len(points))
    together = hulls(points[shuffled, 0], points[shuffled, 1], owner[shuffled], 4)
    for hull, group in zip(together, groups, strict=True):
        np.testing.assert_array_equal(np.unique(hull, axis=0), np.unique(hull_of(group), axis=0))


def test_corners_are_in_paddles_order() -> None:
    corners = np.array([[[10, 20], [0, 0], [0, 20], [10, 0]], [[5, 0], [10, 5], [5, 10], [0, 5]]], float)
    assert in_order(corners).tolist() == [
        [[0, 0], [10, 0], [10, 20], [0, 20]],
        [[5, 0], [10, 5], [5, 10], [0, 5]],
    ]


def test_a_rectangle_grows_on_all_sides_with_round_corners() -> None:
    points = enlarge(np.array([[[10, 10], [30, 10], [30, 20], [10, 20]]], float), np.array([4.0]))[0]
    assert (points.min(axis=0).tolist(), points.max(axis=0).tolist()) == ([6, 6], [34, 24])
    corner = points[(points < 10).all(axis=1)]
    assert len(corner) >= 1
    assert np.abs(np.hypot(*(corner - 10).T) - 4).max() < 1  # on the arc, to a pixel's rounding


CLIPPER = [
    (1.2, [(10, 10), (30, 10), (30, 20), (10, 20)], "9,10 9,20 10,9 10,21 30,9 30,21 31,10 31,20"),
    (
        3.7,
        [(12, 5), (40, 17), (36, 27), (8, 15)],
        "5,14 5,17 7,18 9,4 10,2 13,2 35,30 38,30 39,28 41,14 43,15 43,18",
    ),
]
"""A distance, a rectangle, and what pyclipper 1.4 makes of both: JT_ROUND, ET_CLOSEDPOLYGON."""


@pytest.mark.parametrize(("distance", "corners", "points"), CLIPPER)
def test_it_grows_as_clipper_has_it(distance: float, corners: list[tuple[int, int]], points: str) -> None:
    found = enlarge(np.array([corners], float), np.array([distance]))[0]
    expected = np.array([[float(v) for v in point.split(",")] for point in points.split()])
    np.testing.assert_array_equal(np.unique(hull_of(found), axis=0), np.unique(hull_of(expected), axis=0))


def test_corners_that_floats_miss_by_little_are_whole() -> None:
    exact = np.array([[[10, 10], [30, 10], [30, 20], [10, 20]]], float)
    distance = np.array([4.0])
    np.testing.assert_array_equal(enlarge(exact - 1e-5, distance), enlarge(exact, distance))
