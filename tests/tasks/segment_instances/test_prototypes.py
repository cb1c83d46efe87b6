"""Masks of prototypes, against a slow way: interpolate the whole frame, pixel by pixel, then cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.tasks.segment_instances.prototypes import instances

Array = npt.NDArray[Any]
PLACEMENTS = {
    "as it is": (ImagePlacement(32, 32, 32, 32), 1),
    "stretched": (ImagePlacement(40, 23, 32, 32, 32 / 40, 32 / 23), 1),
    "letterboxed": (ImagePlacement(50, 25, 32, 32, 0.64, 0.64, 0, 8), 1),
    "edges in the middle of a cell": (ImagePlacement(50, 31, 32, 32, 0.64, 20 / 31, 0, 6), 2),
    "edges at a quarter of a cell": (ImagePlacement(50, 27, 32, 32, 0.64, 17 / 27, 0, 7), 4),
    "cropped": (ImagePlacement(64, 32, 32, 32, 1, 1, -16, 0), 1),
}
"""Where the frame lies, and by how much 8 x 8 cells of 4 pixels grow until its edges are between cells."""


def at(grid: Array, x: float, y: float) -> float:
    """Bilinear value between cells; beyond the outer cells' middles, theirs."""
    rows, columns = grid.shape
    x, y = min(max(x, 0), columns - 1), min(max(y, 0), rows - 1)
    left, top = int(x), int(y)
    right, bottom = min(left + 1, columns - 1), min(top + 1, rows - 1)
    upper = grid[top, left] * (1 - (x - left)) + grid[top, right] * (x - left)
    lower = grid[bottom, left] * (1 - (x - left)) + grid[bottom, right] * (x - left)
    return float(upper * (1 - (y - top)) + lower * (y - top))


def resized(grid: Array, width: int, height: int) -> Array:
    rows, columns = grid.shape
    return np.array(
        [
            [
                at(grid, (x + 0.5) * columns / width - 0.5, (y + 0.5) * rows / height - 0.5)
                for x in range(width)
            ]
            for y in range(height)
        ]
    )


def slow_mask(cells: Array, placed: ImagePlacement, factor: int, box: Array) -> Array:
    """The whole frame by Ultralytics' steps: grow, cut the frame's part, bring it to the frame's size; then
    what lies in the box."""
    side = 8 * factor
    grown, scale = resized(cells, side, side), factor / 4
    left, top = round(placed.offset_x * scale), round(placed.offset_y * scale)
    right = left + round(placed.frame_width * placed.scale_x * scale)
    bottom = top + round(placed.frame_height * placed.scale_y * scale)
    if left < 0:  # a frame that is cropped: outside of the input the nearest
        grown = np.pad(grown, ((0, 0), (-left, right - side)), "edge")
        left, right = 0, right - left
    there = resized(grown[top:bottom, left:right], placed.frame_width, placed.frame_height)
    y, x = np.mgrid[0 : placed.frame_height, 0 : placed.frame_width]
    inside: Array = (there > 0) & (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
    return inside


def made(placed: ImagePlacement, boxes: Array, coefficients: Array, prototypes: Array) -> Instances:
    count = len(boxes)
    scores, classes = np.linspace(1, 0.5, count, dtype=np.float32), np.arange(count)
    return instances(boxes, scores, classes, coefficients, prototypes, placed, ())


@pytest.mark.parametrize("name", PLACEMENTS)
def test_masks_are_the_slow_ways(name: str) -> None:
    placed, factor = PLACEMENTS[name]
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(1, 5, 8, 8)).astype(np.float32)
    coefficients = rng.normal(size=(6, 5)).astype(np.float32)
    corner = rng.uniform(6, 16, (6, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 14, (6, 2))], axis=1).astype(np.float32)
    found = made(placed, boxes, coefficients, prototypes)
    frame_boxes = placed.to_frame(boxes)
    assert len(found) >= 5
    for index in range(len(found)):
        number = int(found.classes[index])
        cells = np.tensordot(coefficients[number], prototypes[0], 1)
        expected = slow_mask(cells, placed, factor, frame_boxes[number])
        np.testing.assert_array_equal(found.mask(index), expected)


def test_empty_masks_are_left_out() -> None:
    prototypes = np.ones((1, 1, 8, 8), np.float32)
    boxes = np.array([[0, 0, 8, 8], [8, 8, 16, 16], [4.2, 4, 4.6, 9], [40, 0, 50, 9]], np.float32)
    coefficients = np.array([[-1], [1], [1], [1]], np.float32)  # below 0; good; between two columns; outside
    found = made(PLACEMENTS["as it is"][0], boxes, coefficients, prototypes)
    assert found.classes.tolist() == [1]
    assert found[0].area == 64
    assert (found[0].left, found[0].top, found[0].mask.shape) == (8, 8, (8, 8))
