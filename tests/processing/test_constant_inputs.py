"""Inputs that a card holds constant, e.g. the size that a detection transformer wants beside the picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import CardError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.processing.processing import prepare
from edgekit.tensor_spec import TensorSpec

IMAGE = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
SPECS = (TensorSpec("x", "float32", (1, 3, 8, 8)), TensorSpec("size", "int64", (1, 2)))


def card(**entry: Any) -> Card:
    size = {"kind": "tensor", "shape": [1, 2], **entry}
    return parse_card({"title": "test", "inputs": {"x": IMAGE, "size": size}}, SPECS, ())


def test_a_constant_goes_in_with_every_picture() -> None:
    frame = np.zeros((4, 4, 3), np.uint8)
    for value, expected in ((640, [[640, 640]]), ([480, 640], [[480, 640]])):
        feeds, _ = prepare(card(value=value, dtype="int64"), frame)
        assert feeds["size"].tolist() == expected
        assert feeds["size"].dtype == np.int64


def test_a_scalar_stays_one() -> None:
    made = parse_card(
        {"title": "t", "inputs": {"sr": {"kind": "tensor", "shape": [], "value": 16, "dtype": "int64"}}}
    )
    assert made.constants()["sr"].shape == ()
    assert made.constants()["sr"].dtype == np.int64


def test_it_travels_as_json() -> None:
    made = card(value=[480, 640], dtype="int64")
    assert parse_card(made.as_json()) == made


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            {"value": [1, 2, 3], "dtype": "int64"},
            "value has 3 numbers; it must be one, or one for each element of [1, 2], at most 4096",
        ),
        ({"value": 1.5, "dtype": "int64"}, "value is [1.5]; it is outside of int64"),
        ({"value": 300, "dtype": "uint8"}, "value is [300.0]; it is outside of uint8"),
        ({"dtype": "int64"}, "dtype needs value; without it, the model's dtype is used"),
    ],
)
def test_malformed_constants(entry: dict[str, Any], text: str) -> None:
    with pytest.raises(CardError) as error:
        card(**entry)
    assert str(error.value) == f"card: inputs.size.{text}"


def test_a_constant_has_no_range() -> None:
    with pytest.raises(CardError) as error:
        card(value=1, dtype="int64", range=[0, 1])
    assert str(error.value) == "card: inputs.size has both value and range; a constant has no range"


def test_its_dtype_must_be_the_models() -> None:
    with pytest.raises(CardError) as error:
        card(value=1, dtype="int32")
    assert str(error.value) == "test: input size is int32 in the card but int64 in the model"


def test_an_array_that_nobody_gives_is_refused() -> None:
    with pytest.raises(CardError) as error:
        prepare(card(), np.zeros((4, 4, 3), np.uint8))
    assert str(error.value) == (
        "test: a prediction needs one image, one sound or one text, in addition to constants and states; "
        "this card has x (image), size (tensor)"
    )
