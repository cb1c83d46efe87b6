"""Resizing equals the libraries that models are trained with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgekit.processing import resize
from edgekit.processing.resize import Box, Interpolation, grey_picture, resize_planes

Array = npt.NDArray[Any]
SIZES = [
    ((640, 480), (416, 312)),  # camera to YOLOX
    ((1920, 1080), (416, 234)),
    ((200, 100), (416, 208)),  # enlarged
    ((33, 17), (50, 60)),
    ((437, 437), (224, 224)),
    ((1280, 720), (640, 360)),  # exactly by two: OpenCV averages there
    ((64, 64), (64, 100)),
    ((1, 1), (5, 7)),
    ((2, 3), (1, 1)),
]
sides = st.integers(1, 70)


def picture(width: int, height: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def resized(source: Array, width: int, height: int, **how: Any) -> Array:
    """As [height, width, channels], as the libraries give it."""
    box = Box(0, 0, source.shape[1], source.shape[0])
    return resize_planes(source, box, width, height, **how).transpose(1, 2, 0)


@pytest.mark.parametrize(("source", "size"), SIZES)
def test_linear_is_opencv_bit_for_bit(source: tuple[int, int], size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    frame = picture(*source)
    np.testing.assert_array_equal(resized(frame, *size), cv2.resize(frame, size))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), sides, sides, st.data())
def test_whole_ratios_are_opencv_in_any_window(
    ratio: int, width: int, height: int, data: st.DataObject
) -> None:
    cv2 = pytest.importorskip("cv2")
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    window = Box(left, top, data.draw(st.integers(1, width - left)), data.draw(st.integers(1, height - top)))
    frame = picture(width * ratio, height * ratio)
    resize._plan.cache_clear()  # a first image: not OpenCV itself
    found = resized(frame, width, height, window=window)
    expected = cv2.resize(frame, (width, height))[top : top + window.height, left : left + window.width]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("source", "size"), [*SIZES, ((120, 80), (30, 20))])
def test_opencv_resizes_if_its_bytes_are_equal(
    source: tuple[int, int], size: tuple[int, int], interleaved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cv2 = pytest.importorskip("cv2")
    calls = []
    real = cv2.resize

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return real(*args, **options)

    monkeypatch.setattr(cv2, "resize", counted)
    resize._plan.cache_clear()
    frame, (width, height) = picture(*source), size
    window = Box(width // 4, height // 3, width - width // 4, height - height // 3)
    how: dict[str, Any] = {"channels": (2, 1, 0), "interleaved": interleaved, "window": window}
    first = resized(frame, *size, **how).copy()
    assert not calls
    for count in (2, 3):  # once on noise and once on the frame, then on the frame alone
        np.testing.assert_array_equal(resized(frame, *size, **how), first)
        assert len(calls) == count


def test_pixels_are_picked_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = pytest.importorskip("cv2")
    frame, calls = picture(90, 60), []
    expected = cv2.resize(frame, (30, 20))
    monkeypatch.setattr(cv2, "resize", lambda *args, **options: calls.append(args))
    for _ in range(3):
        np.testing.assert_array_equal(resized(frame, 30, 20), expected)
    assert not calls


@pytest.mark.parametrize("channels", [(0,), (1,), (2, 0), (1, 1, 1), (2, 1, 0)])
@pytest.mark.parametrize("stride", [1, 3])
def test_any_channels_of_later_images(stride: int, channels: tuple[int, ...]) -> None:
    pytest.importorskip("cv2")
    frame, box = picture(64, 48)[:, :, :stride], Box(0, 0, 64, 48)
    wanted = tuple(channel % stride for channel in channels)
    first = resize_planes(frame, box, 41, 31, channels=wanted).copy()
    for _ in range(3):
        np.testing.assert_array_equal(resize_planes(frame, box, 41, 31, channels=wanted), first)


def test_another_module_of_that_name_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", ModuleType("cv2"))
    resize._plan.cache_clear()
    first = resized(picture(64, 48), 41, 31).copy()
    for _ in range(3):
        np.testing.assert_array_equal(resized(picture(64, 48), 41, 31), first)
    resize._plan.cache_clear()


@pytest.mark.parametrize("size", [(416, 312), (320, 240)])
def test_an_opencv_whose_bytes_differ_is_not_used(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cv2 = pytest.importorskip("cv2")
    real = cv2.resize

    def one_off(*args: Any, **how: Any) -> Array:  # as OpenCV 5.0 on ARM
        result: Array = real(*args, **how)
        result[result > 200] -= 1
        return result

    resize._plan.cache_clear()
    frame = np.minimum(picture(640, 480), 199)  # a frame on which the two agree
    expected = cv2.resize(frame, size)
    monkeypatch.setattr(cv2, "resize", one_off)
    bright = picture(640, 480, 1)
    results = [resized(shown, *size).copy() for shown in (frame, frame, bright)]
    monkeypatch.undo()
    np.testing.assert_array_equal(results[1], expected)
    np.testing.assert_array_equal(results[2], cv2.resize(bright, size))
    resize._plan.cache_clear()


@settings(max_examples=60, deadline=None)
@given(sides, sides, sides, sides, st.integers(0, 9))
def test_linear_is_opencv_at_any_size(w: int, h: int, to_w: int, to_h: int, seed: int) -> None:
    cv2 = pytest.importorskip("cv2")
    frame = picture(w, h, seed)
    np.testing.assert_array_equal(resized(frame, to_w, to_h), cv2.resize(frame, (to_w, to_h)))


@pytest.mark.parametrize(("source", "size"), SIZES)
def test_cubic_is_opencv_within_one_level(source: tuple[int, int], size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    frame = picture(*source)
    found = resized(frame, *size, interpolation="cubic").astype(int)
    off = np.abs(found - cv2.resize(frame, size, interpolation=cv2.INTER_CUBIC))
    assert off.max() <= 1
    assert off.mean() < 0.06  # with Intel's library inside OpenCV; without it 0.00001


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize(("source", "size"), SIZES)
def test_antialias_is_pillow_bit_for_bit(
    source: tuple[int, int], size: tuple[int, int], interpolation: Interpolation
) -> None:
    frame = picture(*source)
    how = Image.Resampling.BILINEAR if interpolation == "linear" else Image.Resampling.BICUBIC
    expected = np.asarray(Image.fromarray(frame).resize(size, how))
    found = resized(frame, *size, interpolation=interpolation, antialias=True)
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=60, deadline=None)
@given(sides, sides, sides, st.booleans(), st.sampled_from(["linear", "cubic"]))
def test_antialias_is_pillow_along_each_axis(
    w: int, h: int, size: int, across: bool, interpolation: Interpolation
) -> None:
    """One axis at a time: Pillow 13 goes down first at some sizes, and rounding between differs then."""
    frame = picture(w, h)
    to = (size, h) if across else (w, size)
    how = Image.Resampling.BILINEAR if interpolation == "linear" else Image.Resampling.BICUBIC
    expected = np.asarray(Image.fromarray(frame).resize(to, how))
    np.testing.assert_array_equal(resized(frame, *to, interpolation=interpolation, antialias=True), expected)


@settings(max_examples=40, deadline=None)
@given(sides, sides, sides, sides)
def test_antialias_is_pillow_within_one_level(w: int, h: int, to_w: int, to_h: int) -> None:
    frame = picture(w, h)
    expected = np.asarray(Image.fromarray(frame).resize((to_w, to_h), Image.Resampling.BILINEAR))
    assert np.abs(resized(frame, to_w, to_h, antialias=True).astype(int) - expected).max() <= 1


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("level", [0, 1, 127, 254, 255])
def test_one_colour_stays(interpolation: Interpolation, antialias: bool, level: int) -> None:
    frame = np.full((48, 61, 3), level, np.uint8)
    found = resized(frame, 37, 67, interpolation=interpolation, antialias=antialias)
    assert (found == level).all()


@pytest.mark.parametrize("interpolation", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_blocks_of_rows_join(
    interpolation: Interpolation, antialias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = picture(48, 61)
    whole = resized(frame, 37, 67, interpolation=interpolation, antialias=antialias)
    monkeypatch.setattr(resize, "SCRATCH_BYTES", 0)  # the smallest blocks
    resize._plan.cache_clear()
    assert (resized(frame, 37, 67, interpolation=interpolation, antialias=antialias) == whole).all()
    resize._plan.cache_clear()


def test_linear_by_hand() -> None:
    frame = np.array([[[0], [100]]], np.uint8)
    found = resize_planes(frame, Box(0, 0, 2, 1), 4, 1, channels=(0,))
    assert found.tolist() == [[[0, 25, 75, 100]]]


@pytest.mark.parametrize("size", [(20, 10), (31, 17)])
def test_channels_are_picked_in_order(size: tuple[int, int]) -> None:
    frame = picture(20, 10)
    box = Box(0, 0, 20, 10)
    straight = resize_planes(frame, box, *size)
    np.testing.assert_array_equal(resize_planes(frame, box, *size, channels=(2, 1, 0)), straight[::-1])
    np.testing.assert_array_equal(resize_planes(frame, box, *size, channels=(1,)), straight[1:2])


@pytest.mark.parametrize("how", [{}, {"interpolation": "cubic"}, {"antialias": True}])
def test_a_box_sees_nothing_around_it(how: dict[str, Any]) -> None:
    frame = picture(90, 70)
    cut = np.ascontiguousarray(frame[11:51, 23:83])
    found = resize_planes(frame, Box(23, 11, 60, 40), 31, 27, **how)
    np.testing.assert_array_equal(found, resize_planes(cut, Box(0, 0, 60, 40), 31, 27, **how))


def test_results_are_the_callers_own() -> None:
    box = Box(0, 0, 40, 30)
    first = resize_planes(picture(40, 30, 1), box, 400, 300)
    kept = first.copy()
    resize_planes(picture(40, 30, 2), box, 400, 300)
    np.testing.assert_array_equal(first, kept)


def test_a_frame_that_is_a_view_gives_what_its_copy_gives() -> None:
    frame = picture(80, 60)[::-1, ::2]
    box = Box(0, 0, 40, 60)
    found = resize_planes(frame, box, 31, 23)
    np.testing.assert_array_equal(found, resize_planes(frame.copy(), box, 31, 23))


def test_threads_do_not_share_scratch() -> None:
    frames = [picture(320, 240, seed) for seed in range(8)]
    box = Box(0, 0, 320, 240)
    expected = [resize_planes(frame, box, 200, 150) for frame in frames]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda frame: resize_planes(frame, box, 200, 150), frames * 8))
    for index, planes in enumerate(found):
        np.testing.assert_array_equal(planes, expected[index % 8])


@pytest.mark.parametrize("grey_of", [grey_picture, resize._grey])
def test_grey_is_opencvs(grey_of: Callable[[Array, str], Array]) -> None:
    cv2 = pytest.importorskip("cv2")
    frame = picture(64, 48)
    grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
    np.testing.assert_array_equal(grey_of(frame, "bgr")[:, :, 0], grey)
    np.testing.assert_array_equal(grey_of(frame[:, :, ::-1], "rgb")[:, :, 0], grey)


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_grey_of_opencv_that_differs_is_not_used(is_whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = pytest.importorskip("cv2")
    real, frame = cv2.cvtColor, picture(64, 48)
    expected = real(frame, cv2.COLOR_BGR2GRAY)

    def one_off(*args: Any, dst: Array) -> None:
        real(*args, dst=dst)
        dst[dst > 200] -= 1

    if is_whole:
        monkeypatch.setattr(cv2, "cvtColor", one_off)
    else:
        monkeypatch.setitem(sys.modules, "cv2", ModuleType("cv2"))
    resize._grey_equals_opencv.cache_clear()
    found = grey_picture(frame, "bgr")
    resize._grey_equals_opencv.cache_clear()
    np.testing.assert_array_equal(found[:, :, 0], expected)


@pytest.mark.parametrize("how", [{}, {"interpolation": "cubic"}, {"antialias": True}])
@pytest.mark.parametrize(("source", "size"), [((33, 17), (50, 60)), ((90, 70), (40, 33)), ((12, 9), (12, 9))])
def test_interleaved_is_the_same_in_another_order(
    source: tuple[int, int], size: tuple[int, int], how: dict[str, Any]
) -> None:
    frame, box = picture(*source), Box(0, 0, *source)
    planes = resize_planes(frame, box, *size, channels=(2, 1, 0), **how)
    found = resize_planes(frame, box, *size, channels=(2, 1, 0), interleaved=True, **how)
    np.testing.assert_array_equal(found, planes)
    assert found.transpose(1, 2, 0).flags.c_contiguous
