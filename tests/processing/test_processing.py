"""A frame goes into the input as the card says, and what comes out is put back where it was in the frame."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgekit.errors import CardError, EngineError, UsageError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.processing import decode, placement, prepare

Array = npt.NDArray[Any]


def card(**image: Any) -> Card:
    entry = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    task = {"kind": "classify", "decode": "probabilities", "outputs": {"scores": "p"}, "labels": ["a", "b"]}
    return parse_card({"title": "test", "inputs": {"x": {**entry, **image}}, "task": task})


def frame(width: int, height: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def fed(made: Card, picture: Array, order: str = "rgb") -> Array:
    return prepare(made, picture, order)[0]["x"]


def test_pixels_as_they_are() -> None:
    picture = frame(8, 8)
    found = fed(card(), picture)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], picture.transpose(2, 0, 1))


@pytest.mark.parametrize("colour", ["RGB", "BGR"])
@pytest.mark.parametrize("size", [8, 11])
def test_colours_go_where_the_model_wants_them(colour: str, size: int) -> None:
    picture = frame(size, size)
    straight = fed(card(colour=colour), picture)
    np.testing.assert_array_equal(fed(card(colour=colour), picture[:, :, ::-1], "bgr"), straight)
    other = "BGR" if colour == "RGB" else "RGB"
    np.testing.assert_array_equal(fed(card(colour=other), picture), straight[:, ::-1])


def test_grey() -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:, :, 0] = 200  # red
    made = card(colour="GREY", shape=[1, 1, 8, 8])
    assert np.unique(fed(made, picture)).tolist() == [60]  # 0.299 x 200
    assert np.unique(fed(made, picture, "bgr")).tolist() == [23]  # 0.114 x 200


def test_mean_std_and_layout() -> None:
    picture = frame(8, 8)
    numbers: dict[str, Any] = {"mean": [10, 20, 30], "std": [2, 4, 8]}
    found = fed(card(shape=[1, 8, 8, 3], layout="NHWC", **numbers), picture)
    expected = (picture.astype(np.float32) - [10, 20, 30]) / np.array([2, 4, 8], np.float32)
    np.testing.assert_array_equal(found[0], expected.astype(np.float32))
    np.testing.assert_array_equal(fed(card(**numbers), picture)[0], found[0].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("dtype", "mean", "level", "expected"),
    [
        ("int8", 128, 0, -128),
        ("int8", 128, 255, 127),
        ("int8", 0, 255, 127),  # clipped, not wrapped
        ("uint8", 0, 255, 255),
        ("uint8", 100, 50, 0),
        ("int32", 0, 200, 200),
        ("int64", 100, 50, -50),
        ("uint16", 100, 50, 0),
        ("int16", 0, 255, 255),
        ("float16", 127.5, 255, 127.5),
    ],
)
def test_dtypes(dtype: str, mean: float, level: int, expected: float) -> None:
    made = card(dtype=dtype, mean=[mean] * 3)
    found = fed(made, np.full((8, 8, 3), level, np.uint8))
    assert found.dtype == np.dtype(dtype)
    assert np.unique(found).tolist() == [expected]
    low, high = made.ranges()["x"]
    assert low <= expected <= high


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_integers_are_clipped_and_never_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    made = card(dtype=dtype, mean=[100.0] * 3, std=[1e-18] * 3)
    low, high = (fed(made, np.full((8, 8, 3), level, np.uint8)).max() for level in (0, 255))
    assert low == info.min
    assert 0.9999 * info.max < high <= info.max
    assert made.ranges()["x"] == (float(info.min), float(info.max))


def test_integers_are_rounded() -> None:
    made = card(dtype="uint8", std=[2, 2, 2])
    assert np.unique(fed(made, np.full((8, 8, 3), 3, np.uint8))).tolist() == [2]  # 1.5


@pytest.mark.parametrize(
    ("size", "place", "rows", "columns"),
    [
        ((16, 8), "top-left", slice(0, 4), slice(0, 8)),
        ((16, 8), "center", slice(2, 6), slice(0, 8)),
        ((4, 12), "top-left", slice(0, 8), slice(0, 2)),
        ((4, 12), "center", slice(0, 8), slice(3, 5)),
        ((5000, 1), "top-left", slice(0, 1), slice(0, 8)),  # never less than a pixel
    ],
)
def test_letterbox(size: tuple[int, int], place: str, rows: slice, columns: slice) -> None:
    made = card(resize="letterbox", place=place, pad=114, mean=[14] * 3, std=[2] * 3)
    found = fed(made, np.full((size[1], size[0], 3), 34, np.uint8))
    expected = np.full((3, 8, 8), 50, np.float32)  # (114 - 14) / 2
    expected[:, rows, columns] = 10
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize(
    ("dtype", "padding"), [("float32", [55, np.float32(14) / np.float32(3), -1.5]), ("int8", [55, 5, -2])]
)
@pytest.mark.parametrize("size", [(16, 5), (5, 16)])
def test_padding_of_each_channel_in_both_layouts(
    size: tuple[int, int], dtype: str, padding: list[float]
) -> None:
    how: dict[str, Any] = {"resize": "letterbox", "place": "center", "pad": 114, "dtype": dtype}
    how |= {"mean": [4.0, 100.0, 120.0], "std": [2.0, 3.0, 4.0]}
    planes = fed(card(**how), frame(*size))
    assert planes[0, :, 0, 0].tolist() == planes[0, :, 7, 7].tolist() == padding
    found = fed(card(shape=[1, 8, 8, 3], layout="NHWC", **how), frame(*size))
    np.testing.assert_array_equal(found, planes.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("rounding", "side", "rows"),
    [("down", 13, 6), ("nearest", 13, 6), ("down", 15, 7), ("nearest", 15, 8), ("nearest", 1, 1)],
)
def test_letterbox_rounds_the_shorter_side(rounding: str, side: int, rows: int) -> None:
    """16 to 8: 13 becomes 6.5, and Python rounds that to the even 6, as Ultralytics' LetterBox does; 15
    becomes 7.5 and rounds to 8."""
    made = card(resize="letterbox", rounding=rounding, pad=114)
    picture = np.full((side, 16, 3), 34, np.uint8)
    assert (fed(made, picture)[0, 0, :, 0] == 34).sum() == rows
    assert placement(made, 16, side).scale_y == rows / side
    assert ("rounding" in made.image_input().as_json()) == (rounding != "down")


@pytest.mark.parametrize(("width", "columns"), [(20, 20), (21, 21), (22, 22), (40, 24), (1, 1)])
def test_fit_height_fills_the_height_and_squeezes_what_is_too_long(width: int, columns: int) -> None:
    made = card(shape=[1, 3, 8, 24], resize="fit-height", pad=128)
    picture = np.full((8, width, 3), 34, np.uint8)
    expected = np.full((8, 24), 128)
    expected[:, :columns] = 34
    np.testing.assert_array_equal(fed(made, picture)[0, 0], expected)
    assert placement(made, width, 8).scale_x == columns / width
    assert made.image_input().as_json()["pad"] == 128


def test_fit_height_rounds_the_width_up() -> None:
    made = card(shape=[1, 3, 8, 24], resize="fit-height", pad=128)
    found = fed(made, np.full((12, 19, 3), 34, np.uint8))[0, 0]
    assert (found[0] == 34).sum() == 13  # 19 x 8 / 12 = 12.67


def test_center_crop() -> None:
    picture = frame(20, 16)
    found = fed(card(resize="center-crop", crop=0.5), picture)
    np.testing.assert_array_equal(found[0], picture[4:12, 6:14].transpose(2, 0, 1))


def test_center_crop_has_the_inputs_proportions() -> None:
    picture = frame(40, 40)
    found = fed(card(resize="center-crop", shape=[1, 3, 20, 40]), picture)
    np.testing.assert_array_equal(found[0], picture[10:30].transpose(2, 0, 1))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 200),
    st.sampled_from(["down", "nearest"]),
    st.sampled_from([Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]),
    st.sampled_from([8, 9, 24]),
)
def test_resize_crop_has_the_pixels_of_torchvisions_transforms(
    width: int, height: int, rounding: str, filter_: Image.Resampling, crop: int
) -> None:
    """Resize(side) and CenterCrop on Pillow's pictures; transformers rounds the crop's position down.

    Across, then down: in one step, Pillow 13 goes down first at some sizes.
    """
    picture, side = frame(width, height), 27
    shorter = min(width, height)
    across = Image.fromarray(picture).resize((side * width // shorter, height), filter_)
    whole = across.resize((side * width // shorter, side * height // shorter), filter_)
    left, top = (
        round((size - crop) / 2) if rounding == "nearest" else (size - crop) // 2 for size in whole.size
    )
    interpolation = "linear" if filter_ == Image.Resampling.BILINEAR else "cubic"
    made = card(
        resize="resize-crop", crop=crop / side, rounding=rounding, interpolation=interpolation,
        antialias=True, shape=[1, 3, crop, crop],
    )  # fmt: skip
    values, placed = prepare(made, picture)
    expected = np.asarray(whole.crop((left, top, left + crop, top + crop)))
    np.testing.assert_array_equal(values["x"][0], expected.transpose(2, 0, 1))
    np.testing.assert_allclose(
        placed.to_frame(np.array([[-left, -top, whole.width - left, whole.height - top]], np.float32)),
        [[0, 0, width, height]],
        atol=1e-3 * max(width, height),
    )


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
def test_a_long_picture_is_computed_in_the_crop_only(antialias: bool, interpolation: str) -> None:
    """Its longer side would be 14 million pixels long."""
    made = card(
        resize="resize-crop",
        crop=8 / 27,
        interpolation=interpolation,
        antialias=antialias,
        rounding="nearest",
    )
    picture = np.full((1, 1 << 19, 3), 7, np.uint8)
    tracemalloc.start()
    values = fed(made, picture)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.unique(values).tolist() == [7]
    assert peak_bytes < 64 << 20


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.sampled_from([("stretch", {}), ("letterbox", {"place": "center"}), ("letterbox", {})]),
)
def test_the_frames_corners_come_back(width: int, height: int, how: tuple[str, dict[str, str]]) -> None:
    made = card(resize=how[0], shape=[1, 3, 32, 64], **how[1])
    _, placed = prepare(made, np.zeros((height, width, 3), np.uint8))
    corners = np.array([[0, 0], [width, height]], np.float32)
    scale = np.array([placed.scale_x, placed.scale_y], np.float32)
    within = corners * scale + np.array([placed.offset_x, placed.offset_y], np.float32)
    assert (within >= 0).all()
    assert (within <= [64.001, 32.001]).all()
    np.testing.assert_allclose(placed.to_frame(within), corners, atol=1e-3)


def test_a_crop_comes_back() -> None:
    _, placed = prepare(card(resize="center-crop", crop=0.5), frame(20, 16))
    np.testing.assert_allclose(placed.to_frame(np.array([[0, 0, 8, 8]], np.float32)), [[6, 4, 14, 12]])


@pytest.mark.parametrize(
    ("picture", "order", "text"),
    [
        ([[1]], "rgb", "a frame is a numpy array uint8 [height, width, 3], not a list"),
        (np.zeros((4, 4, 3)), "rgb", "a frame is uint8 [height, width, 3], not float64 [4, 4, 3]"),
        (np.zeros((4, 4), np.uint8), "rgb", "a frame is uint8 [height, width, 3], not uint8 [4, 4]"),
        (np.zeros((4, 4, 4), np.uint8), "rgb", "a frame is uint8 [height, width, 3], not uint8 [4, 4, 4]"),
        (np.zeros((0, 4, 3), np.uint8), "rgb", "a frame is uint8 [height, width, 3], not uint8 [0, 4, 3]"),
        (
            np.zeros((4, 4, 3), np.uint8),
            "BGR",
            "order is 'BGR'; it must be one of rgb, bgr, nv12, i420, yuyv (OpenCV gives bgr)",
        ),
    ],
)
def test_what_is_no_frame(picture: Any, order: str, text: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(card(), picture, order)
    assert str(error.value) == text


def test_inputs_that_are_no_image() -> None:
    made = parse_card({"title": "state", "inputs": {"h": {"kind": "tensor", "shape": [1, 8]}}})
    with pytest.raises(CardError) as error:
        prepare(made, frame(8, 8))
    assert str(error.value) == (
        "state: a prediction needs one image, one sound or one text, in addition to constants and states; "
        "this card has h (tensor)"
    )


PLACED = ImagePlacement(8, 8, 8, 8)


def test_answers_carry_the_cards_labels() -> None:
    found = decode(card(), {"p": np.array([[0.2, 0.8]], np.float32)}, PLACED)
    assert isinstance(found, Classes)
    assert [(one.label, round(one.score, 3)) for one in found] == [("b", 0.8), ("a", 0.2)]


def test_options_of_one_call() -> None:
    found = decode(card(), {"p": np.array([[0.2, 0.8]], np.float32)}, PLACED, top=1)
    assert [one.label for one in found] == ["b"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"score": 0.5}, "probabilities has no option score; available: scale, top, zero_point"),
        ({"top": 0}, "probabilities does not accept these options: top is 0; it must be at least 1"),
        ({"top": 1.5}, "probabilities does not accept these options: top is 1.5; it must be a whole number"),
        ({"top": "2"}, "probabilities does not accept these options: top is '2'; it must be a whole number"),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as error:
        decode(card(), {"p": np.zeros((1, 2), np.float32)}, PLACED, **options)
    assert str(error.value) == text


def test_an_output_that_is_not_there() -> None:
    with pytest.raises(EngineError) as error:
        decode(card(), {"q": np.zeros((1, 2), np.float32)}, PLACED)
    assert str(error.value) == "the card decodes output p, but the model returned q"


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_outputs_that_are_not_finite(poison: float) -> None:
    with pytest.raises(EngineError) as error:
        decode(card(), {"p": np.array([[0.2, poison]], np.float32)}, PLACED)
    assert str(error.value) == (
        "1 of 2 values of output p are NaN or infinite; the input or this variant's arithmetic is at "
        "fault: try another engine or precision"
    )


def test_a_sum_that_overflows_is_no_fault() -> None:
    found = decode(card(), {"p": np.full((1, 2), 3e38, np.float32)}, PLACED)
    assert len(found) == 2


def test_a_card_without_a_task() -> None:
    entry = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    made = parse_card({"title": "embedder", "inputs": {"x": entry}})
    with pytest.raises(CardError) as error:
        decode(made, {}, PLACED)
    assert str(error.value) == (
        "embedder: the card has no task, so outputs stay arrays; add one, or use run()"
    )


def test_outputs_that_do_not_fit_the_decoder() -> None:
    """A card that names other outputs than its decoder means gets one error, with the shapes."""
    names = {"heatmap": "h", "size": "s", "offset": "o"}
    task = {"kind": "detect", "decode": "centernet", "outputs": names}
    image = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    made = parse_card({"title": "test", "inputs": {"x": image}, "task": task})
    shapes = {"h": (1, 1, 4, 4), "s": (1, 2, 4, 4), "o": (1, 2, 3, 3)}
    outputs = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(EngineError) as error:
        decode(made, outputs, ImagePlacement(8, 8, 8, 8))
    assert str(error.value).startswith(
        "outputs do not fit kind = 'detect', decode = 'centernet': "
        "heatmap [1, 1, 4, 4], size [1, 2, 4, 4], offset [1, 2, 3, 3]; correct the card's task ("
    )
    assert isinstance(error.value.__cause__, (IndexError, ValueError))
