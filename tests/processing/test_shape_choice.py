"""The shape at which a bundle of several shapes predicts for a picture or a sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgekit.processing.card import parse_card
from edgekit.processing.processing import prepare
from edgekit.processing.shape_choice import card_for, cards_at
from edgekit.tensor_spec import Signature, TensorSpec
from tests.fixtures.sounds import KWS, audio


def shapes_of(name: str, shapes: Sequence[tuple[int, ...]]) -> list[Signature]:
    return [Signature((TensorSpec(name, "float32", shape),), ()) for shape in shapes]


def fed(entry: dict[str, Any], shapes: Sequence[tuple[int, ...]], item: Any, rate: int | None = None) -> Any:
    """The shape of the model's input for an item."""
    card = parse_card({"title": "t", "inputs": {"x": {**entry, "shape": list(shapes[-1])}}})
    chosen = card_for(cards_at(card, shapes_of("x", shapes)), item, rate)
    return prepare(chosen, item, rate=rate)[0]["x"].shape


@pytest.mark.parametrize(
    ("samples", "rate", "at"),
    [(3, None, 4), (4, None, 4), (5, None, 8), (8, None, 8), (16, None, 16), (8, 32000, 4), (4, 8000, 8)],
)
def test_a_sound_takes_the_shortest_window_that_holds_it(samples: int, rate: int | None, at: int) -> None:
    windows = [(1, size) for size in (4, 8, 16)]
    assert fed(audio(), windows, np.zeros(samples, np.float32), rate) == (1, at)


def test_features_of_a_short_sound() -> None:
    entry = {"kind": "audio", "rate": 16000, "features": KWS}
    shapes = [(1, 24, 10, 1), (1, 49, 10, 1)]  # windows of 7840 and 15840 samples
    for samples, frames in ((7840, 24), (7841, 49), (15840, 49)):
        assert fed(entry, shapes, np.zeros(samples, np.float32)) == (1, frames, 10, 1)


def image(resize: str, **more: Any) -> dict[str, Any]:
    return {"kind": "image", "layout": "NCHW", "colour": "RGB", "resize": resize, **more}


@pytest.mark.parametrize(
    ("resize", "height", "width", "at"),
    [
        ("stretch", 32, 33, 64),
        ("letterbox", 20, 32, 32),
        ("letterbox", 200, 3, 64),
        ("center-crop", 32, 500, 32),  # the crop is as high as the picture
        ("center-crop", 40, 500, 64),
    ],
)
def test_a_picture_is_not_scaled_down_where_a_shape_allows(
    resize: str, height: int, width: int, at: int
) -> None:
    frame = np.zeros((height, width, 3), np.uint8)
    assert fed(image(resize), [(1, 3, 32, 32), (1, 3, 64, 64)], frame) == (1, 3, at, at)


@pytest.mark.parametrize(("width", "at"), [(100, 80), (160, 80), (170, 160), (320, 160), (900, 160)])
def test_a_line_of_text_takes_the_shortest_that_does_not_compress_it(width: int, at: int) -> None:
    frame = np.zeros((96, width, 3), np.uint8)  # half of it is the input's height
    assert fed(image("fit-height"), [(1, 3, 48, 80), (1, 3, 48, 160)], frame) == (1, 3, 48, at)


def test_a_batch_is_no_shape_for_one_picture() -> None:
    frame = np.zeros((30, 30, 3), np.uint8)
    assert fed(image("stretch"), [(2, 3, 32, 32), (1, 3, 64, 64)], frame) == (1, 3, 64, 64)


@pytest.mark.parametrize("item", ["a text", 3, np.zeros(0, np.uint8), np.zeros((3, 3), np.uint8)])
def test_what_is_no_picture_gets_the_largest(item: Any) -> None:
    card = parse_card({"title": "t", "inputs": {"x": {**image("stretch"), "shape": [1, 3, 64, 64]}}})
    cards = cards_at(card, shapes_of("x", [(1, 3, 32, 32), (1, 3, 64, 64)]))
    assert len(cards) == 2
    assert card_for(cards, item, None) is card
