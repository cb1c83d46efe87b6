"""Pictures that models make of pictures."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tasks.image_to_image.decode import PictureOptions, picture

WHOLE = ImagePlacement(2, 1, 2, 1)
PLANES = np.array([[[[0, 1.2]], [[0.5, 0.2]], [[1, -1]]]], np.float32)  # R, G, B of two pixels


def test_pixels() -> None:
    found = picture({"picture": PLANES}, PictureOptions(), WHOLE)
    assert found.pixels.tolist() == [[[0, 128, 255], [255, 51, 0]]]
    assert found.pixels.dtype == np.uint8
    assert found.pixels.flags.c_contiguous
    assert (str(found), found.as_json()) == ("picture 2x1, RGB", {"width": 2, "height": 1, "channels": 3})
    bgr = picture({"picture": PLANES[:, ::-1].transpose(0, 2, 3, 1)}, PictureOptions("NHWC", "BGR"), WHOLE)
    np.testing.assert_array_equal(bgr.pixels, found.pixels)


@pytest.mark.parametrize(("least", "most"), [(-1.0, 1.0), (0.0, 255.0), (16.0, 235.0)])
def test_ranges(least: float, most: float) -> None:
    scaled = PLANES * (most - least) + least
    found = picture({"picture": scaled}, PictureOptions(range=(least, most)), WHOLE)
    np.testing.assert_allclose(found.pixels, [[[0, 128, 255], [255, 51, 0]]], atol=1)


def test_super_resolution_leaves_the_padding_out() -> None:
    placed = ImagePlacement(30, 20, 8, 8, 8 / 30, 5 / 20)  # three rows of the input are padding
    output = np.zeros((1, 1, 32, 32), np.float32)
    output[:, :, 20:] = 1
    found = picture({"picture": output}, PictureOptions(), placed)
    assert found.pixels.shape == (20, 32, 1)
    assert not found.pixels.any()
    assert str(found) == "picture 32x20, grey"
    assert picture({"picture": output}, PictureOptions(size="frame"), placed).pixels.shape == (20, 30, 1)


def test_what_is_no_range() -> None:
    with pytest.raises(ValueError, match=r"range is \[1, 0\]; it must be \[black, white\]"):
        PictureOptions(range=(1, 0))
