"""Text maps: made by hand, and a network's whose boxes are known from PaddleOCR's own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.detect_text.db import DbOptions, detect_text

Array = npt.NDArray[Any]
WHOLE = ImagePlacement(96, 64, 96, 64)  # the frame is the input
GOLDEN = np.load(Path(__file__).parents[1] / "paddleocr.npz")
"""Maps of PP-OCRv4's detector on pages of text, in 8 bits, and the boxes of rapidocr-onnxruntime 1.4.4 with
OpenCV 5.0, pyclipper 1.4 and shapely 2.2."""


def text_map(*blocks: tuple[slice, slice, float]) -> Array:
    values = np.full((1, 1, 64, 96), 0.01, np.float32)
    for rows, columns, value in blocks:
        values[0, 0, rows, columns] = value
    return values


@pytest.mark.parametrize(
    ("name", "options"),
    [("PaddleOCR", DbOptions()), ("rapidocr", DbOptions(score=0.5, unclip=1.6, dilate=True))],
)
@pytest.mark.parametrize("page", [0, 1])
def test_boxes_are_those_of_paddleocr(name: str, options: DbOptions, page: int) -> None:
    values = (GOLDEN[f"map_{page}"].astype(np.float32) / 255)[None, None]
    found = detect_text({"map": values}, options, ImagePlacement(640, 640, 640, 640))
    boxes, scores = GOLDEN[f"{name}_boxes_{page}"], GOLDEN[f"{name}_scores_{page}"]
    assert len(found) == len(boxes) > 3
    apart = np.abs(found.corners[:, None] - boxes).max((2, 3))
    nearest = apart.argmin(axis=1)
    assert sorted(nearest.tolist()) == list(range(len(boxes)))
    assert apart.min(axis=1).max() <= 1
    # The origin cuts corners to whole pixels with the noise of OpenCV's floats: a few scores differ by a row.
    off = np.abs(found.scores - scores[nearest])
    assert np.median(off) < 1e-6
    assert (off < 1e-3).mean() > 0.8


def test_a_region_grows_by_area_and_perimeter() -> None:
    values = text_map((slice(20, 31), slice(20, 61), 0.9))  # 40 x 10 between the outermost pixels' centres
    found = detect_text({"map": values}, DbOptions(unclip=2.0), WHOLE)  # by 400 x 2 / 100 = 8
    assert found.corners.tolist() == [[[12, 12], [68, 12], [68, 38], [12, 38]]]
    np.testing.assert_allclose(found.scores, [0.9])


def test_where_the_frame_lies_in_the_input() -> None:
    values = text_map((slice(20, 31), slice(20, 61), 0.9))
    placed = ImagePlacement(160, 80, 192, 128, 1.0, 1.0, 8.0, 4.0)  # the map is half the input
    found = detect_text({"map": values}, DbOptions(unclip=0), placed)
    assert found.corners.tolist() == [[[32, 36], [112, 36], [112, 56], [32, 56]]]


def test_nhwc_maps_are_read() -> None:
    values = text_map((slice(20, 31), slice(20, 61), 0.9))
    one = detect_text({"map": values}, DbOptions(), WHOLE)
    other = detect_text({"map": values.transpose(0, 2, 3, 1)}, DbOptions(), WHOLE)
    np.testing.assert_array_equal(one.corners, other.corners)


def test_what_is_no_text() -> None:
    weak = (slice(5, 15), slice(5, 40), 0.5)
    small = (slice(40, 43), slice(60, 62), 0.9)
    assert len(detect_text({"map": text_map(weak, small)}, DbOptions(), WHOLE)) == 0
    assert len(detect_text({"map": text_map(weak, small)}, DbOptions(score=0.4), WHOLE)) == 1
    assert len(detect_text({"map": text_map()}, DbOptions(), WHOLE)) == 0


def test_thin_and_small_ones_are_no_text() -> None:
    """In a frame four times as large as the map, so that its own least side does not count."""
    large = ImagePlacement(384, 256, 96, 64, 0.25, 0.25)

    def found(rows: int, columns: int, unclip: float) -> int:
        block = (slice(30, 30 + rows), slice(10, 10 + columns), 0.9)
        return len(detect_text({"map": text_map(block)}, DbOptions(unclip=unclip), large))

    assert [found(rows, 70, 0) for rows in (2, 3, 4)] == [0, 0, 1]  # 3 between the outer pixels' centres
    assert [found(4, 4, unclip) for unclip in (0.1, 2.0)] == [0, 1]  # and 5 after it has grown
    assert found(2, 2, 2.0) == 0


def test_slivers_in_the_frame_are_no_text() -> None:
    small = ImagePlacement(24, 16, 96, 64, 4.0, 4.0)  # 12 pixels of the map are 3 of the frame
    for high, expected in ((13, 0), (14, 1)):
        letters = text_map((slice(20, 20 + high), slice(20, 60), 0.9))
        assert len(detect_text({"map": letters}, DbOptions(unclip=0), small)) == expected


def test_regions_end_within_the_frame() -> None:
    values = text_map((slice(50, 64), slice(60, 96), 0.9))
    found = detect_text({"map": values}, DbOptions(), WHOLE)
    assert found.corners[0, 2].tolist() == [95, 63]


def test_a_hole_in_text_is_no_region() -> None:
    values = text_map((slice(10, 50), slice(10, 80), 0.9), (slice(20, 40), slice(30, 60), 0.02))
    assert len(detect_text({"map": values}, DbOptions(score=0.01), WHOLE)) == 1


def test_thin_type_is_joined_by_dilation() -> None:
    letters = [(slice(20, 32), slice(column, column + 7), 0.9) for column in range(10, 80, 8)]
    assert len(detect_text({"map": text_map(*letters)}, DbOptions(unclip=0), WHOLE)) == 9
    assert len(detect_text({"map": text_map(*letters)}, DbOptions(unclip=0, dilate=True), WHOLE)) == 1


def test_the_largest_regions_stay() -> None:
    blocks = [(slice(4, 10), slice(4, 40), 0.9), (slice(30, 50), slice(4, 60), 0.9)]
    found = detect_text({"map": text_map(*blocks)}, DbOptions(unclip=0, top=1), WHOLE)
    assert found.corners[:, 0].tolist() == [[4, 30]]


def test_reading_order() -> None:
    right, left = (slice(20, 30), slice(60, 90), 0.9), (slice(24, 34), slice(4, 40), 0.9)
    below = (slice(50, 60), slice(4, 40), 0.9)
    found = detect_text({"map": text_map(below, right, left)}, DbOptions(unclip=0), WHOLE)
    assert found.corners[:, 0].tolist() == [[4, 24], [60, 20], [4, 50]]
    assert str(found).splitlines()[0] == "0.900  4,24  39,24  39,33  4,33"
    assert found.as_json()[0] == {"score": 0.9, "corners": [[4, 24], [39, 24], [39, 33], [4, 33]]}
    assert str(detect_text({"map": text_map()}, DbOptions(), WHOLE)) == "no text found"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threshold": 1.5}, r"threshold is 1\.5; it must be from 0 to 1"),
        ({"unclip": -1.0}, "unclip is -1; it must be from 0 to 10"),
        ({"top": 0}, "top is 0; it must be at least 1"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        DbOptions(**options)
