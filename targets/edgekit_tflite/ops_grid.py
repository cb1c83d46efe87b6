"""GridSample: places that the model computes, read by GATHER from flat images, and weighed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from edgekit.lowering import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import channels_last, identity
from edgekit_tflite.ops_shape import strided_slice

CUBIC_A = -0.75
"""ONNX GridSample's cubic coefficient."""


@dataclass(frozen=True)
class Tap:
    """One element that a place reads along one axis: its index (whole, in range) and its weight."""

    index: Value
    weight: Value | None


@lower("GridSample", since=20)
def grid_sample(
    b: Builder,
    X: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    """Any mode and padding, two or three spatial axes (cubic: two): a GATHER for each element read."""
    spatial = X.shape[2:]
    axes = len(spatial)
    if mode not in ("linear", "nearest", "cubic") or axes not in (2, 3) or (mode == "cubic" and axes == 3):
        raise Inexpressible(f"mode {mode!r} over {axes} spatial axes has no form")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise Inexpressible(f"padding_mode {padding_mode!r} is not one of zeros, border, reflection")
    batch, channels = X.shape[:2]
    out = grid.shape[1:-1]
    places = b.to(grid, identity(grid.rank))
    taps = []
    for axis, size in enumerate(spatial):
        begin = (0,) * (grid.rank - 1) + (axes - 1 - axis,)  # the grid names the last axis first
        part = strided_slice(b, places, begin, (1,) * grid.rank, (*grid.shape[:-1], 1))
        at = b.reshape(part, (batch, *out))
        taps.append(_taps(b, at, size, bool(align_corners), mode, padding_mode))
    rows = b.reshape(b.to(X, channels_last(X.rank)), X.shape)
    flat = b.view_as(rows, (batch * prod(spatial), channels))
    first = b.constant((np.arange(batch, dtype=np.float32) * prod(spatial)).reshape(batch, *(1,) * axes))
    total: Value | None = None
    for chosen in product(*taps):
        row: Value | None = None
        for tap, size in zip(chosen, spatial, strict=True):
            row = (
                tap.index if row is None else b.binary("ADD", b.binary("MUL", row, b.scalar(size)), tap.index)
            )
        assert row is not None
        where = b.cast(b.binary("ADD", row, first), "int32")
        read = b.emit("GATHER", [flat, where], b.new((batch, *out, channels), X.dtype), axis=0, batch_dims=0)
        for tap in chosen:
            if tap.weight is not None:
                read = b.binary("MUL", read, b.reshape(tap.weight, (batch, *out, 1)))
        total = read if total is None else b.binary("ADD", total, read)
    assert total is not None
    return b.transpose(total, (0, axes + 1, *range(1, axes + 1)))


def _taps(b: Builder, at: Value, size: int, aligned: bool, mode: str, padding: str) -> list[Tap]:
    """What a place between -1 and 1 reads along an axis of ``size`` elements."""
    # ONNX: (x + 1) / 2 * (size - 1), or ((x + 1) * size - 1) / 2 where corners are not aligned.
    scale, shift = ((size - 1) / 2, (size - 1) / 2) if aligned else (size / 2, (size - 1) / 2)
    x = b.binary("ADD", b.binary("MUL", at, b.scalar(scale)), b.scalar(shift))
    ends = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if mode == "nearest":
        return [_tap(b, b.unary("ROUND", x), None, size, ends, padding)]
    if mode == "linear":
        if padding == "border":
            x = _between(b, x, 0.0, size - 1.0)
        elif padding == "reflection":
            x = _reflected(b, x, ends)
        low = b.unary("FLOOR", x)
        part = b.binary("SUB", x, low)
        weights = [b.binary("SUB", b.scalar(1.0), part), part]
        return [_tap(b, _moved(b, low, k), w, size, ends, padding) for k, w in enumerate(weights)]
    low = b.unary("FLOOR", x)
    part = b.binary("SUB", x, low)
    return [_tap(b, _moved(b, low, k), _cubic(b, part, k), size, ends, padding) for k in (-1, 0, 1, 2)]


def _moved(b: Builder, x: Value, by: int) -> Value:
    return b.binary("ADD", x, b.scalar(by)) if by else x


def _between(b: Builder, x: Value, low: float, high: float) -> Value:
    return b.binary("MINIMUM", b.binary("MAXIMUM", x, b.scalar(low)), b.scalar(high))


def _cubic(b: Builder, part: Value, k: int) -> Value:
    """The weight of the element ``k`` behind the place's floor (R. Keys, 1981)."""
    a = CUBIC_A
    distance = b.unary("ABS", b.binary("SUB", part, b.scalar(k)))
    powers = (a + 2, -(a + 3), 0.0, 1.0) if k in (0, 1) else (a, -5 * a, 8 * a, -4 * a)
    made = b.binary("MUL", distance, b.scalar(powers[0]))
    for power in powers[1:3]:
        made = b.binary("MUL", b.binary("ADD", made, b.scalar(power)), distance)
    return b.binary("ADD", made, b.scalar(powers[3]))


def _tap(
    b: Builder, index: Value, weight: Value | None, size: int, ends: Sequence[float], padding: str
) -> Tap:
    if padding == "reflection":
        index = _reflected(b, index, ends)
    inside = _between(b, index, 0.0, size - 1.0)
    if padding == "zeros":
        same = b.cast(b.elementwise("EQUAL", [index, inside], "bool"), "float32")
        weight = same if weight is None else b.binary("MUL", weight, same)
    # Reflected indices may be a rounding beside a whole number.
    return Tap(b.unary("ROUND", inside) if padding == "reflection" else inside, weight)


def _reflected(b: Builder, x: Value, ends: Sequence[float]) -> Value:
    """``x`` folded back at both ends, as often as it takes."""
    low, high = ends
    length = high - low
    if length == 0:
        return b.binary("ADD", b.binary("MUL", x, b.scalar(0.0)), b.scalar(low))
    over = b.unary("ABS", b.binary("SUB", x, b.scalar(low)))
    turns = b.unary("FLOOR", b.binary("DIV", over, b.scalar(length)))
    rest = b.binary("SUB", over, b.binary("MUL", turns, b.scalar(length)))
    half = b.unary("FLOOR", b.binary("MUL", turns, b.scalar(0.5)))
    odd = b.binary("SUB", turns, b.binary("MUL", half, b.scalar(2.0)))
    # rest, or length - rest on the way back
    back = b.binary("SUB", b.scalar(length), b.binary("MUL", rest, b.scalar(2.0)))
    return b.binary("ADD", b.binary("ADD", rest, b.binary("MUL", odd, back)), b.scalar(low))
