"""Images: mean and std in the wrong units."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing.inputs.image import read_image


def table(**more: Any) -> dict[str, Any]:
    plain = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    return {**plain, **more}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
            "x.std is in units of 0 to 1, but pixels are 0 to 255: write mean = [123.675, 116.28, 103.53] "
            "and std = [58.395, 57.12, 57.375]",
        ),
        (
            {"mean": [0.5, 0.5, 0.5]},
            "x.mean is in units of 0 to 1, but pixels are 0 to 255: write mean = [127.5, 127.5, 127.5] and "
            "std = [255.0, 255.0, 255.0]",
        ),
        (
            {"std": [0.5, 0.5, 0.5]},
            "x.std is in units of 0 to 1, but pixels are 0 to 255: write std = [127.5, 127.5, 127.5]",
        ),
        (
            {"std": [0.00392156862745098] * 3},
            "x.std is a factor, but pixels are divided by std: write std = [255.0, 255.0, 255.0]",
        ),
    ],
)
def test_units_of_zero_to_one_are_refused_with_the_line_to_write(given: dict[str, Any], message: str) -> None:
    with pytest.raises(CardError) as refused:
        read_image("x", table(**given), "x")
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"mean": [0, 0, 0], "std": [1, 1, 1]},
        {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]},
        {"mean": [128, 128, 128], "dtype": "int8"},
        {"mean": [103.94, 116.78, 123.68], "std": [1, 1, 1]},
        {"mean": [0, 0, 0], "std": [255, 255, 255]},
        {"std": [1.0, 1.0, 1.0]},
    ],
)
def test_units_of_pixels_are_taken(given: dict[str, Any]) -> None:
    assert read_image("x", table(**given), "x").name == "x"
