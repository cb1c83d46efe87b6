"""Resizing of 8-bit images, in numpy alone: the one implementation, on the host and on the device.

The results are defined by two libraries that models are trained with, and the tests hold them to it:

    linear                    cv2.resize(INTER_LINEAR): fixed point, bit for bit
    cubic                     cv2.resize(INTER_CUBIC): within 1 of 255 (so do OpenCV's own code and its IPP)
    linear/cubic, antialias   Pillow's resize(BILINEAR/BICUBIC): fixed point, bit for bit if Pillow goes
                              across before it goes down (Pillow 13 does not at some sizes)

Fast in numpy because what depends on sizes only (indices, weights, scratch memory) is planned once and
kept, the gather of columns brings colour planes apart on the way (networks want planes), and rows go
through in blocks that stay in the cache. If the app has loaded OpenCV, and it gives the same bytes, OpenCV
resizes, in a fifth of the time, and brings the planes apart.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from edgekit.system.interrupts import pass_on
from edgekit.target.kept_arrays import kept_array

Array = npt.NDArray[Any]
Interpolation = Literal["linear", "cubic"]

SCRATCH_BYTES = 2 << 20
"""Of a block, about. A larger one leaves the cache. Smaller ones make more calls of numpy, and each of them
gives the interpreter's lock away: two threads, with blocks of .5 MB, waited for each other.
"""
CV_BITS = 11  # OpenCV's INTER_RESIZE_COEF_BITS
PILLOW_BITS = 22  # Pillow's PRECISION_BITS


class Box(NamedTuple):
    """The part of an image that is resized, in pixels."""

    left: int
    top: int
    width: int
    height: int


def resize_planes(
    picture: Array,
    box: Box,
    width: int,
    height: int,
    *,
    channels: Sequence[int] = (0, 1, 2),
    interpolation: Interpolation = "linear",
    antialias: bool = False,
    interleaved: bool = False,
    window: Box | None = None,
) -> Array:
    """Resize ``box`` of an image.

    Args:
        picture: uint8 [rows, columns, channels].
        box: Lies within the image.
        channels: Channels in their new order, e.g. ``(2, 1, 0)`` turns BGR into RGB.
        antialias: Whether the filter widens when the image shrinks, as Pillow's does.
        interleaved: Whether the result lies in memory as [height, width, len(channels)].
        window: Part of the resized box to compute. None means all of it.

    Returns:
        uint8 [len(channels), height, width] of the window, the caller's own.
    """
    sizes = box.width, box.height, width, height, window or Box(0, 0, width, height), picture.shape[2]
    how = tuple(channels), interpolation, antialias, interleaved
    plan = _plan(*sizes, *how, threading.get_ident())
    key = plan.key
    part = picture[box.top : box.top + box.height, box.left : box.left + box.width]
    result = _empty_result(key)
    if isinstance(plan, _OpenCVPlan) and "cv2" in sys.modules and plan.equals_opencv():
        _resize_by_opencv(part, key, result)
    elif picture.flags.c_contiguous:  # the plan copies the rows that it needs
        rows = picture.reshape(len(picture), -1)[box.top : box.top + box.height]
        plan.run(rows[:, box.left * key.stride : (box.left + box.width) * key.stride], result)
    else:
        plan.run(np.ascontiguousarray(part).reshape(box.height, -1), result)
    return result


def _empty_result(key: PlanKey) -> Array:
    channels = len(key.channels)
    if key.interleaved:
        return kept_array((key.y.length, key.x.length, channels), np.uint8).transpose(2, 0, 1)
    return kept_array((channels, key.y.length, key.x.length), np.uint8)


def _resize_by_opencv(part: Array, key: PlanKey, result: Array) -> None:
    """Resize by the ``cv2`` that the app has loaded."""
    cv2 = sys.modules["cv2"]
    x, y, channels = key.x, key.y, key.channels
    pixels = result.transpose(1, 2, 0)
    in_order = pixels.flags.c_contiguous and channels == tuple(range(key.stride))
    if (y.source, x.source) == (y.size, x.size):
        whole = part
    else:
        is_direct = in_order and (y.length, x.length) == (y.size, x.size)
        whole = pixels if is_direct else kept_array((y.size, x.size, key.stride), np.uint8)
        cv2.resize(part, (x.size, y.size), dst=whole, interpolation=cv2.INTER_LINEAR)
    window = whole[y.start : y.start + y.length, x.start : x.start + x.length]
    if whole is pixels:
        return
    if in_order:
        pixels[:] = window
    elif key.interleaved and channels == (2, 1, 0) and key.stride == 3:
        cv2.cvtColor(window, cv2.COLOR_BGR2RGB, dst=pixels)
    elif not key.interleaved and sorted(channels) == list(range(key.stride)):
        cv2.split(window, [result[channels.index(channel)] for channel in range(key.stride)])  # into them
    else:
        for plane, channel in zip(result, channels, strict=True):
            plane[:] = window[:, :, channel]


def grey_picture(picture: Array, order: str) -> Array:
    """Compute the luma of ITU-R BT.601, like ``cv2.cvtColor``: (9798 R + 19235 G + 3735 B + 2^14) >> 15.

    Args:
        picture: uint8 [rows, columns, 3].
        order: ``rgb`` or ``bgr``.

    Returns:
        uint8 [rows, columns, 1].
    """
    by_opencv = "cv2" in sys.modules and _grey_equals_opencv()
    return _grey_by_opencv(picture, order) if by_opencv else _grey(picture, order)


def _grey(picture: Array, order: str) -> Array:
    weights = (9798, 19235, 3735) if order == "rgb" else (3735, 19235, 9798)
    total = picture[:, :, 0].astype(np.int32) * weights[0]
    for channel in (1, 2):
        total += picture[:, :, channel].astype(np.int32) * weights[channel]
    total += 1 << 14
    total >>= 15
    return total.astype(np.uint8)[:, :, None]


def _grey_by_opencv(picture: Array, order: str) -> Array:
    cv2 = sys.modules["cv2"]
    grey = kept_array((*picture.shape[:2], 1), np.uint8)
    cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY if order == "rgb" else cv2.COLOR_BGR2GRAY, dst=grey)
    return grey


@lru_cache(maxsize=1)
def _grey_equals_opencv() -> bool:
    noise = np.random.default_rng(0).integers(0, 256, (1, 65_521, 3), np.uint8)
    try:
        return all(
            np.array_equal(_grey(noise, order), _grey_by_opencv(noise, order)) for order in ("rgb", "bgr")
        )
    except Exception as problem:  # another module of that name, or one that is still being imported
        pass_on(problem)
        return False


class Axis(NamedTuple):
    """Axis of a resize: ``source`` pixels become ``size``; ``length`` from ``start`` on are computed."""

    source: int
    size: int
    start: int
    length: int

    @property
    def centres(self) -> Array:
        """Return the centres of the computed pixels, in pixels of the resized axis: float64 [length]."""
        return np.arange(self.start, self.start + self.length) + 0.5


class PlanKey(NamedTuple):
    """All that a plan depends on."""

    x: Axis
    y: Axis
    stride: int
    channels: tuple[int, ...]
    interpolation: Interpolation
    antialias: bool
    interleaved: bool


@lru_cache(maxsize=16)
def _plan(
    source_width: int, source_height: int, width: int, height: int, window: Box, stride: int,
    channels: tuple[int, ...], interpolation: Interpolation, antialias: bool, interleaved: bool, thread: int,
) -> _OpenCVPlan | _TapsPlan:  # fmt: skip
    """Return this thread's plan, which holds scratch memory. Its key is made once: that costs more than
    looking the plan up."""
    key = PlanKey(
        Axis(source_width, width, window.left, window.width),
        Axis(source_height, height, window.top, window.height),
        stride, channels, interpolation, antialias, interleaved,
    )  # fmt: skip
    ratio, rest = divmod(key.x.source, key.x.size)
    is_whole = not rest and key.y.source == ratio * key.y.size
    is_linear = key.interpolation == "linear" and not key.antialias
    if is_whole and (is_linear or ratio == 1):
        return _WholeRatioPlan(key, ratio)
    return _LinearPlan(key) if is_linear else _TapsPlan(key)


@dataclass(frozen=True)
class _RowBlock:
    """Result rows ``first`` to ``last`` and the source rows they are made of."""

    first: int
    last: int
    source: slice | Array  # rows of the image; a slice if they follow each other: no copy
    count: int
    local: Array  # intp [taps, last - first]: which of the ``count`` rows
    weights: Array  # [taps, last - first, 1]


def _row_blocks(index: Array, weights: Array, columns: int) -> list[_RowBlock]:
    """Cut ``index`` and ``weights`` [taps, rows of the result] into blocks; rows have ``columns`` values."""
    blocks = []
    block_rows = max(8, SCRATCH_BYTES // (4 * 4 * columns))  # four arrays of 32 bits
    for first in range(0, index.shape[1], block_rows):
        last = min(first + block_rows, index.shape[1])
        rows, local = np.unique(index[:, first:last], return_inverse=True)
        gapless = rows[-1] - rows[0] + 1 == len(rows)
        source = slice(int(rows[0]), int(rows[-1]) + 1) if gapless else rows
        taps = np.ascontiguousarray(local.reshape(index.shape[0], -1))
        block_weights = np.ascontiguousarray(weights[:, first:last, None])
        blocks.append(_RowBlock(first, last, source, len(rows), taps, block_weights))
    return blocks


def _column_index(index: Array, stride: int, channels: Sequence[int], interleaved: bool) -> Array:
    """Compute the offsets in a row of interleaved pixels for ``index`` [taps, columns]: [taps, channels x
    columns], or [taps, columns x channels]."""
    offsets = index[:, None, :] * stride + np.asarray(channels, np.intp)[None, :, None]
    return _in_order(offsets, interleaved)


def _in_order(numbers: Array, interleaved: bool) -> Array:
    """Reshape [taps, channels, columns] to [taps, channels x columns] or [taps, columns x channels]."""
    return (numbers.transpose(0, 2, 1) if interleaved else numbers).reshape(len(numbers), -1)


def _store(rows: Array, result: Array, first: int, interleaved: bool) -> None:
    """Put rows [rows, channels x columns], or [rows, columns x channels], into the result from row ``first``
    on."""
    channels, _, width = result.shape
    part = result[:, first : first + len(rows)]
    if interleaved:
        part.transpose(1, 2, 0)[:] = rows.reshape(-1, width, channels)
    else:
        part[:] = rows.reshape(-1, channels, width).transpose(1, 0, 2)


class _OpenCVPlan(ABC):
    """A plan for what OpenCV's INTER_LINEAR computes on uint8."""

    def __init__(self, key: PlanKey) -> None:
        self.key, self.runs, self.equal = key, 0, False

    def equals_opencv(self) -> bool:
        """Return whether OpenCV gives the same bytes at this size.

        Tried on noise, which no camera's black first frame is, and at the second image of a size: a batch of
        photos of many sizes would try at each.

        OpenCV 5.0 on ARM differs by 1 in a fifth of a photo's values (KleidiCV 26.03); 4.10 to 4.13 do not.
        """
        self.runs += 1
        if self.runs == 2:
            key = self.key
            noise = np.random.default_rng(0).integers(0, 256, 65_521, np.uint8)  # repeated: it costs less
            picture = np.resize(noise, (key.y.source, key.x.source, key.stride))
            ours, theirs = _empty_result(key), _empty_result(key)
            self.run(picture.reshape(key.y.source, -1), ours)
            try:
                _resize_by_opencv(picture, key, theirs)
            except Exception as problem:  # another module of that name, or one that is still being imported
                pass_on(problem)
            else:
                self.equal = np.array_equal(ours, theirs)
        return self.equal

    @abstractmethod
    def run(self, source: Array, result: Array) -> None:
        """Resize uint8 [rows, columns x channels] into uint8 [channels, height, width]."""


class _WholeRatioPlan(_OpenCVPlan):
    """A whole ratio: each value is one pixel (odd ratios) or the mean of four (even ones)."""

    def __init__(self, key: PlanKey, ratio: int) -> None:
        super().__init__(key)
        self.is_sampled = ratio > 1 and ratio % 2 == 1
        self.taps = range((ratio - 1) // 2, ratio // 2 + 1)
        self.x, self.y = (
            slice(axis.start * ratio, (axis.start + axis.length) * ratio, ratio) for axis in (key.x, key.y)
        )
        self.total = np.empty((key.y.length, key.x.length), np.uint16)

    def equals_opencv(self) -> bool:
        return not self.is_sampled and super().equals_opencv()  # slices take half of OpenCV's time

    def run(self, source: Array, result: Array) -> None:
        pixels = source.reshape(len(source), -1, self.key.stride)
        for plane, channel in zip(result, self.key.channels, strict=True):
            parts = [
                pixels[down:, across:, channel][self.y, self.x] for down in self.taps for across in self.taps
            ]
            if len(parts) == 1:
                plane[:] = parts[0]
                continue
            np.add(parts[0], parts[1], out=self.total, dtype=np.uint16)
            self.total += parts[2]
            self.total += parts[3]
            self.total += np.uint16(2)
            np.right_shift(self.total, 2, out=plane, casting="unsafe")


class _LinearPlan(_OpenCVPlan):
    """OpenCV's INTER_LINEAR on uint8.

    horizontal   h = s[x] a0 + s[x+1] a1, weights of 11 bits
    vertical     (((h0 >> 4) b0 >> 16) + ((h1 >> 4) b1 >> 16) + 2) >> 2

    (modules/imgproc/src/resize.cpp, HResizeLinear and VResizeLinear for uchar, OpenCV 4 and 5.)
    The horizontal weights are kept 12 bits higher: then h >> 4 is h' >> 16 and fits unsigned 32 bits.
    """

    def __init__(self, key: PlanKey) -> None:
        super().__init__(key)
        channels, self.interleaved = key.channels, key.interleaved
        x, x_weights = _linear_taps(key.x, zero_outside=True)
        y, y_weights = _linear_taps(key.y, zero_outside=False)
        self.columns = key.x.length * len(channels)
        self.gather = _column_index(x, key.stride, channels, self.interleaved).reshape(-1)
        column_weights = np.repeat(x_weights.astype(np.uint32)[:, None] << 12, len(channels), axis=1)
        self.weights = np.ascontiguousarray(_in_order(column_weights, self.interleaved))
        self.blocks = _row_blocks(y, y_weights.astype(np.uint32), self.columns)
        max_rows = max(block.count for block in self.blocks)
        self.pixels = np.empty((max_rows, 2 * self.columns), np.uint8)
        self.left, self.right = np.empty((2, max_rows, self.columns), np.uint32)
        rows = max(block.last - block.first for block in self.blocks)
        self.above, self.below = np.empty((2, rows, self.columns), np.uint32)

    def run(self, source: Array, result: Array) -> None:
        n = self.columns
        for block in self.blocks:
            pixels, left, right = (a[: block.count] for a in (self.pixels, self.left, self.right))
            np.take(source[block.source], self.gather, axis=1, out=pixels, mode="clip")
            np.multiply(pixels[:, :n], self.weights[0], out=left, dtype=np.uint32)
            np.multiply(pixels[:, n:], self.weights[1], out=right, dtype=np.uint32)
            left += right
            left >>= np.uint32(16)
            above, below = (a[: block.last - block.first] for a in (self.above, self.below))
            for rows, taps, weights in zip((above, below), block.local, block.weights, strict=True):
                np.take(left, taps, axis=0, out=rows, mode="clip")
                rows *= weights
                rows >>= np.uint32(16)
            above += below
            above += np.uint32(2)
            above >>= np.uint32(2)
            _store(above, result, block.first, self.interleaved)


def _linear_taps(axis: Axis, *, zero_outside: bool) -> tuple[Array, Array]:
    """Compute indices and 11-bit weights [2, length] of INTER_LINEAR along one axis.

    Outside the image the weight of the far tap is zeroed across, and both taps clipped to the edge down:
    OpenCV does so, and it shows in the last bit.
    """
    source = axis.source
    position = (axis.centres * (source / axis.size) - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.intp)
    fraction = position - first.astype(np.float32)
    if zero_outside:
        fraction[(first < 0) | (first >= source - 1)] = 0
    index = np.clip(np.stack([first, first + 1]), 0, source - 1)
    one = np.float32(1 << CV_BITS)
    return index, np.rint(np.stack([(1 - fraction) * one, fraction * one])).astype(np.int32)


class _TapsPlan:
    """Any number of taps along both axes: OpenCV's INTER_CUBIC and Pillow's filters.

    OpenCV: the horizontal sum stays in integers with 11 bits of fraction; the vertical one is in float32,
    rounded to even. Pillow: 22 bits of fraction, and both passes round to uint8.
    """

    def __init__(self, key: PlanKey) -> None:
        self.key = key
        channels, self.interleaved, self.pillow = key.channels, key.interleaved, key.antialias
        if key.antialias:
            x, x_weights = _pillow_taps(key.x, key.interpolation)
            y, y_weights = _pillow_taps(key.y, key.interpolation)
        else:
            x, x_weights = _cubic_taps(key.x)
            y, y_weights = _cubic_taps(key.y)
            y_weights = y_weights.astype(np.float32) * np.float32(1 / (1 << 2 * CV_BITS))
        self.gather = _column_index(x, key.stride, channels, self.interleaved)
        column_weights = np.repeat(x_weights[:, None], len(channels), axis=1)
        self.weights = np.ascontiguousarray(_in_order(column_weights, self.interleaved))
        self.blocks = _row_blocks(y, y_weights, self.gather.shape[1])

    def run(self, source: Array, result: Array) -> None:
        """Resize uint8 [rows, columns x channels] into uint8 [channels, height, width]."""
        for block in self.blocks:
            rows = source[block.source]
            horizontal = np.zeros((block.count, self.gather.shape[1]), np.int32)
            for index, weights in zip(self.gather, self.weights, strict=True):
                horizontal += rows.take(index, axis=1, mode="clip") * weights
            if self.pillow:
                horizontal = _rounded(horizontal)
            vertical = horizontal.take(block.local[0], axis=0) * block.weights[0]
            for taps, weights in zip(block.local[1:], block.weights[1:], strict=True):
                vertical += horizontal.take(taps, axis=0) * weights
            vertical = _rounded(vertical) if self.pillow else np.clip(np.rint(vertical), 0, 255)
            _store(vertical, result, block.first, self.interleaved)


def _rounded(sums: Array) -> Array:
    """Pillow's clip8: 22 bits of fraction rounded away, 0 to 255. int32."""
    rounded: Array = np.clip((sums + (1 << PILLOW_BITS - 1)) >> PILLOW_BITS, 0, 255)
    return rounded


def _cubic_taps(axis: Axis) -> tuple[Array, Array]:
    """Compute indices and 11-bit weights [4, length] of INTER_CUBIC: Keys' kernel with a = -0.75."""
    position = (axis.centres * (axis.source / axis.size) - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.intp)
    x = position - first.astype(np.float32)
    a = np.float32(-0.75)
    before = ((a * (x + 1) - 5 * a) * (x + 1) + 8 * a) * (x + 1) - 4 * a
    left = ((a + 2) * x - (a + 3)) * x * x + 1
    right = ((a + 2) * (1 - x) - (a + 3)) * (1 - x) * (1 - x) + 1
    weights = np.stack([before, left, right, 1 - before - left - right])
    index = np.clip(first + np.arange(-1, 3)[:, None], 0, axis.source - 1)
    return index, np.rint(weights * np.float32(1 << CV_BITS)).astype(np.int32)


def _pillow_taps(axis: Axis, interpolation: Interpolation) -> tuple[Array, Array]:
    """Compute indices and 22-bit weights [taps, length] of Pillow's resampling (src/libImaging/Resample.c).

    The kernel is as wide as a pixel of the result: triangle of radius 1, or Keys' with a = -0.5, radius 2.
    """
    source, scale = axis.source, axis.source / axis.size
    wide = max(scale, 1.0)
    support = (1.0 if interpolation == "linear" else 2.0) * wide
    centre = axis.centres * scale
    first = np.maximum((centre - support + 0.5).astype(np.intp), 0)
    last = np.minimum((centre + support + 0.5).astype(np.intp), source)
    index = first + np.arange(int(np.ceil(support)) * 2 + 1)[:, None]
    x = np.abs((index - centre + 0.5) * (1.0 / wide))  # Pillow multiplies, here and below: it shows
    if interpolation == "linear":
        weights = np.maximum(1.0 - x, 0.0)
    else:
        a = -0.5
        near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        weights = np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
    weights = np.where(index < last, weights, 0.0)
    weights *= 1.0 / np.add.accumulate(weights)[-1]
    fixed = weights * (1 << PILLOW_BITS)
    rounded = np.trunc(fixed + np.where(fixed < 0, -0.5, 0.5)).astype(np.int32)
    return np.minimum(index, source - 1), rounded
