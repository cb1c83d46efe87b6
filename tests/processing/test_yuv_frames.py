"""Frames in YUV become what the same frame in RGB becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.processing import prepare
from edgekit.processing.read_item import read_image
from edgekit.processing.yuv_frames import SHAPES
from edgekit.tensor_spec import Array

cv2 = pytest.importorskip("cv2")


def card_of(**keys: Any) -> Card:
    image = {"kind": "image", "shape": [1, 3, 96, 128], "layout": "NCHW", "colour": "RGB", **keys}
    task = {"kind": "classify", "decode": "logits", "labels": ["a", "b"], "outputs": {"scores": "o"}}
    return parse_card({"title": "t", "inputs": {"x": {"resize": "letterbox", **image}}, "task": task})


def photograph(width: int, height: int) -> Array:
    """Return an image with soft colours and an edge, uint8 [height, width, 3] in RGB."""
    coarse = np.random.default_rng(0).integers(20, 236, (6, 8, 3), np.uint8)
    picture: Array = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    picture[: height // 2, : width // 3] //= 2
    return picture


def yuv(picture: Array, order: str) -> Array:
    height, width = picture.shape[:2]
    i420: Array = cv2.cvtColor(picture, cv2.COLOR_RGB2YUV_I420)
    if order == "i420":
        return i420
    chroma = i420.reshape(-1)[height * width :].reshape(2, height // 2, width // 2)
    if order == "nv12":
        return np.concatenate([i420[:height], np.moveaxis(chroma, 0, 2).reshape(height // 2, width)])
    doubled = np.repeat(np.moveaxis(chroma, 0, 2), 2, axis=0)
    pairs = np.stack([i420[:height, ::2], doubled[..., 0], i420[:height, 1::2], doubled[..., 1]], 2)
    return pairs.reshape(height, width, 2)


@pytest.mark.parametrize("order", SHAPES)
@pytest.mark.parametrize(
    "keys",
    [
        {}, {"colour": "BGR"}, {"resize": "center-crop", "crop": 0.9}, {"resize": "stretch"},
        {"layout": "NHWC", "shape": [1, 96, 128, 3], "dtype": "uint8"},
        {"colour": "GREY", "shape": [1, 1, 96, 128]},
    ],
    ids=["plain", "BGR", "crop", "stretch", "NHWC", "grey"],
)  # fmt: skip
def test_close_to_the_same_frame_in_rgb(order: str, keys: dict[str, Any]) -> None:
    card, picture = card_of(**keys), photograph(322, 246)
    expected, placed = prepare(card, picture)
    feeds, also = prepare(card, yuv(picture, order), order)
    assert placed == also
    apart = np.abs(feeds["x"].astype(np.float32) - expected["x"].astype(np.float32))
    assert feeds["x"].dtype == expected["x"].dtype
    assert (apart.mean() < 1.5, np.quantile(apart, 0.99) < 16) == (True, True)


@pytest.mark.parametrize("order", SHAPES)
def test_every_colour_is_within_1_of_opencvs(order: str) -> None:
    """Each value of Y with 64 x 64 of U and V, in blocks of 2 x 2 so that halving loses nothing."""
    values = np.arange(0, 256, 4, dtype=np.uint8)
    code = cv2.COLOR_YUV2RGB_YUY2 if order == "yuyv" else getattr(cv2, f"COLOR_YUV2RGB_{order.upper()}")
    for luma in (0, 15, 16, 17, 90, 180, 235, 236, 255):
        u, v = np.meshgrid(values, values)
        y = np.full((128, 128), luma, np.uint8)
        if order == "yuyv":
            rows = [np.repeat(a, 2, axis=0) for a in (u, v)]
            frame = np.stack([y[:, ::2], rows[0], y[:, 1::2], rows[1]], 2).reshape(128, 128, 2)
        else:
            chroma = np.stack([u, v], 2) if order == "nv12" else np.stack([u, v])
            frame = np.concatenate([y, chroma.reshape(64, 128)])
        converted = read_image(frame, order)
        assert np.abs(converted.astype(int) - cv2.cvtColor(frame, code)).max() <= 1


@pytest.mark.parametrize(
    ("shape", "order", "expected"),
    [
        ((4, 6, 3), "nv12", "[height * 3 / 2, width]"),
        ((6, 7), "i420", "[height * 3 / 2, width]"),
        ((6, 8), "yuyv", "[height, width, 2]"),
    ],
)
def test_a_frame_of_another_shape(shape: tuple[int, ...], order: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(card_of(), np.zeros(shape, np.uint8), order)
    text = f"a frame of order {order!r} is uint8 {expected} with an even width, not uint8 {list(shape)}"
    assert str(error.value) == text
