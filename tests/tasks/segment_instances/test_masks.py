"""Masks of instances: YOLO-seg by hand, and prototypes against a slow way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.processing.task_table import find_decoder
from edgekit.tasks.segment_instances.yolo import instances

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(32, 32, 32, 32)  # the frame is the input
BOX = [16, 12, 16, 8]  # x 8 to 24, y 8 to 16


def outputs(decode: str) -> dict[str, Array]:
    """A box whose mask is its left half: the first prototype is above 0 left of x = 16, the second is 1."""
    prototypes = np.ones((1, 2, 8, 8), np.float32)
    prototypes[0, 0] = np.where(np.arange(8) < 4, 1, -1)
    rows = np.zeros((40, 4 + 3 + 2), np.float32)
    rows[7] = [*BOX, 0, 0.8, 0, 1, 0]
    rows[8] = [*BOX, 0, 0.6, 0, 0, 1]  # covered
    if decode == "yolov8":
        return {"predictions": rows.T[None], "prototypes": prototypes}
    if decode == "yolov5":
        objectness = (rows.sum(axis=1, keepdims=True) > 0).astype(np.float32)
        return {
            "predictions": np.concatenate([rows[:, :4], objectness, rows[:, 4:]], axis=1)[None],
            "prototypes": prototypes,
        }
    end2end = np.zeros((1, 300, 8), np.float32)
    end2end[0, 3] = [8, 8, 24, 16, 0.8, 1, 1, 0]
    return {"predictions": end2end, "prototypes": prototypes}


@pytest.mark.parametrize("decode", ["yolov8", "yolov5", "end2end"])
def test_box_and_mask(decode: str) -> None:
    decoder = find_decoder("segment-instances", decode)
    found: Any = decoder.function(outputs(decode), decoder.options(), WHOLE, ["cat", "dog", "cow"])
    assert len(found) == 1
    assert (found[0].label, found[0].score, found[0].box) == ("dog", pytest.approx(0.8), (8, 8, 24, 16))
    expected = np.zeros((32, 32), np.bool_)
    expected[8:16, 8:16] = True
    np.testing.assert_array_equal(found.mask(0), expected)


@pytest.mark.parametrize("decode", ["yolov8", "yolov5", "end2end"])
def test_normalized_positions(decode: str) -> None:
    given, decoder = outputs(decode), find_decoder("segment-instances", decode)
    rows = given["predictions"]
    (rows[:, :4] if decode == "yolov8" else rows[..., :4])[:] /= 32
    found: Any = decoder.function(given, decoder.options(normalized=True), WHOLE, ())
    assert found[0].box == (8, 8, 24, 16)


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
