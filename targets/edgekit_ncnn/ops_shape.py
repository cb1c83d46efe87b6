"""Ops that move data: Reshape, Transpose, Slice, Concat, Pad, Tile and others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from edgekit.compiler.lowering.index_arguments import SliceRanges, constant_ints, non_negative
from edgekit.compiler.lowering.op_arguments import VIEWS
from edgekit.compiler.lowering.pad_amounts import PadAmounts, pad_parts
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_ncnn.builder import AXES_LIMIT, Builder, Shape, Value, lower, natural

ORDERS = {
    2: ("WH", "HW"),
    3: ("WHC", "HWC", "WCH", "CWH", "HCW", "CHW"),
    4: ("WHDC", "HWDC", "WDHC", "DWHC", "HDWC", "DHWC", "WHCD", "HWCD", "WCHD", "CWHD", "HCWD", "CHWD",
        "WDCH", "DWCH", "WCDH", "CWDH", "DCWH", "CDWH", "HDCW", "DHCW", "HCDW", "CHDW", "DCHW", "CDHW"),
}  # fmt: skip
"""Order types of Permute, by the number of axes; each names the output's axes, the innermost first."""
AXIS_NAMES = {2: "HW", 3: "CHW", 4: "CDHW"}
RUNS_LIMIT = 256
"""Most runs of consecutive indices that a Gather is cut into."""


def along(b: Builder, x: Value, axis: int) -> tuple[str, Shape, int]:
    """Return a blob of ``x`` with an axis of its own for one ONNX axis: its name, its shape, and that axis.

    The blob is used as it is if that is possible, else as (outer, axis, inner).
    """
    axis %= max(x.rank, 1)
    for stored in (x.stored, natural(x.shape)):
        left_out = x.rank - len(stored)
        if x.shape[left_out:] == stored and left_out <= axis and all(n == 1 for n in x.shape[:left_out]):
            return b.blob(x, stored), stored, axis - left_out
    stored = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    return b.blob(x, stored), stored, 1


def resized(stored: Shape, axis: int, size: int) -> Shape:
    return (*stored[:axis], size, *stored[axis + 1 :])


def cut(b: Builder, x: Value, axis: int, begin: int, count: int) -> Value:
    """Take ``count`` consecutive elements of an axis."""
    if x.const is not None:
        return b.constant(np.take(x.const, np.arange(begin, begin + count), axis))
    if count == x.shape[axis]:
        return x
    name, stored, dim = along(b, x, axis)
    params = {9: [begin], 10: [begin + count], 11: [dim]}
    return b.reshape(
        b.emit("Crop", [name], resized(stored, dim, count), params), resized(x.shape, axis, count)
    )


def every(b: Builder, x: Value, axis: int, begin: int, step: int, count: int) -> Value:
    """Take every ``step``-th element of an axis."""
    if step == 1 or count == 1:
        return cut(b, x, axis, begin, count)
    length = min(count * step, x.shape[axis] - begin)
    part = cut(b, x, axis, begin, length)
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    if length < count * step:
        name = b.blob(part, (outer, length, inner))
        stored = (outer, count * step, inner)
        part = b.emit("Padding", [name], stored, {1: count * step - length})
    rows = b.reshape(part, (outer, count, step * inner))
    return b.reshape(cut(b, rows, 2, 0, inner), resized(x.shape, axis, count))


def flipped(b: Builder, x: Value, axis: int) -> Value:
    """Reverse an axis."""
    name, stored, dim = along(b, x, axis)
    return b.reshape(b.emit("Flip", [name], stored, {0: [dim]}), x.shape)


def joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Concatenate along an axis."""
    parts = [part for part in parts if part.size]
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    sizes = [part.shape[axis] for part in parts]
    shape = resized(first.shape, axis, sum(sizes))
    shapes = [natural(part.shape) for part in parts]
    dim = axis - (first.rank - len(shapes[0]))
    aligned = all(
        part.shape[part.rank - len(stored) :] == stored and prod(part.shape[: part.rank - len(stored)]) == 1
        for part, stored in zip(parts, shapes, strict=True)
    )
    if not aligned or dim < 0 or len({len(stored) for stored in shapes}) != 1:
        outer, inner = prod(first.shape[:axis]), prod(first.shape[axis + 1 :])
        shapes, dim = [(outer, size, inner) for size in sizes], 1
    names = [b.blob(part, stored) for part, stored in zip(parts, shapes, strict=True)]
    concatenated = b.emit("Concat", names, resized(shapes[0], dim, sum(sizes)), {0: dim})
    return b.reshape(concatenated, shape)


def transposed(b: Builder, x: Value, perm: Sequence[int]) -> Value:
    """Permute the axes, four groups of neighbours at a time."""
    shape = tuple(x.shape[axis] for axis in perm)
    order = [axis for axis in perm if x.shape[axis] != 1]
    groups: list[list[int]] = []
    for axis in order:
        if groups and axis == _next(groups[-1][-1], x.shape):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) < 2:
        return b.reshape(x, shape)
    source = sorted(groups)
    sizes = [prod(x.shape[axis] for axis in group) for group in source]
    places = [source.index(group) for group in groups]
    if len(groups) <= AXES_LIMIT:
        return b.reshape(_permuted(b, x, tuple(sizes), places), shape)
    # Bring one group after the other to its place; a step has four axes: before, those passed, it, after.
    order = list(range(len(groups)))
    for place, target in enumerate(places):
        index = order.index(target)
        if index == place:
            continue
        order.insert(place, order.pop(index))
        step = (prod(sizes[:place]), prod(sizes[place:index]), sizes[index], prod(sizes[index + 1 :]))
        x = _permuted(b, x, step, [0, 2, 1, 3])
        sizes.insert(place, sizes.pop(index))
    return b.reshape(x, shape)


def _next(axis: int, shape: Shape) -> int:
    return next((a for a in range(axis + 1, len(shape)) if shape[a] != 1), -1)


def _permuted(b: Builder, x: Value, sizes: Shape, places: Sequence[int]) -> Value:
    names = AXIS_NAMES[len(sizes)]
    order = ORDERS[len(sizes)].index("".join(names[place] for place in reversed(places)))
    stored = tuple(sizes[place] for place in places)
    return b.emit("Permute", [b.blob(x, sizes)], stored, {0: order})


def reshaped(b: Builder, data: Value) -> Value:
    """Return the same blob with another shape. A Reshape follows if a layer needs it."""
    return b.reshape(data, b.out_shape())


for _op in VIEWS:
    lower(_op, since=13)(reshaped)


@lower("Identity", since=14)
def identity(b: Builder, input: Value) -> Value:
    """Return the same blob."""
    return input


@lower("Cast", since=13)
def cast(b: Builder, input: Value, *, to: int) -> Value:
    """Return the same blob, which holds floats; only casts to float32 or the input's type are supported."""
    assert b.node is not None
    output_type = b.node.outputs[0].dtype
    if output_type is None or output_type.numpy().name not in ("float32", input.dtype):
        name = output_type.numpy().name if output_type is not None else "an unknown type"
        raise Inexpressible(f"ncnn can't cast {input.dtype} to {name}", code="EK1004")
    return input


@lower("Transpose", since=13)
def transpose(b: Builder, data: Value, *, perm: Sequence[int] | None = None) -> Value:
    """Emit Permute, or a Reshape if the order in memory does not change."""
    return transposed(b, data, list(perm) if perm is not None else list(range(data.rank))[::-1])


@lower("Concat", since=13)
def concat(b: Builder, *inputs: Value, axis: int) -> Value:
    """Emit Concat."""
    return joined(b, inputs, axis % inputs[0].rank)


@lower("Split", since=18)
def split(
    b: Builder, input: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int = 0
) -> tuple[Value, ...]:
    """Slice, which is ncnn's name for it."""
    assert b.node is not None
    axis %= input.rank
    sizes = [b.out_shape(index)[axis] for index in range(len(b.node.outputs))]
    name, stored, dim = along(b, input, axis)
    parts = b.emit_slices(name, [resized(stored, dim, n) for n in sizes], {0: sizes, 1: dim})
    return tuple(
        b.reshape(part, resized(input.shape, axis, size)) for part, size in zip(parts, sizes, strict=True)
    )


@lower("Slice", since=13)
def slice_(b: Builder, data: Value, *, ranges: SliceRanges) -> Value:
    """Emit Crop, axis by axis. Steps add a Reshape, and negative steps a Flip."""
    for axis, (begin, step, count) in enumerate(zip(ranges.begin, ranges.step, ranges.shape, strict=True)):
        data = every(b, data, axis, begin, step, count)
    for axis in ranges.reversed_axes:
        data = flipped(b, data, axis)
    return data


@lower("Gather", since=13)
def gather(b: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """Emit Crops of consecutive indices, and concatenate them."""
    if indices.const is None:
        raise Inexpressible("the model computes its indices; they must be constant")
    axis %= data.rank
    return b.reshape(
        picked(b, data, axis, non_negative(indices.const, data.shape[axis]).ravel()), b.out_shape()
    )


def picked(b: Builder, x: Value, axis: int, indices: Array) -> Value:
    """Take elements of an axis by constant indices."""
    if x.const is not None:
        return b.constant(np.take(x.const, indices, axis))
    steps = np.diff(indices)
    if len(indices) > 1 and (steps == steps[0]).all() and steps[0]:
        low, step = int(min(indices[0], indices[-1])), int(steps[0])
        part = every(b, x, axis, low, abs(step), len(indices))
        return flipped(b, part, axis) if step < 0 else part
    bounds = [0, *(np.flatnonzero(steps != 1) + 1).tolist(), len(indices)]
    if len(bounds) > RUNS_LIMIT:
        raise Inexpressible(f"its indices have {len(bounds) - 1} runs, more than the limit of {RUNS_LIMIT}")
    runs = [(int(indices[low]), high - low) for low, high in pairwise(bounds)]
    parts = {run: cut(b, x, axis, *run) for run in dict.fromkeys(runs)}
    return joined(b, [parts[run] for run in runs], axis)


def tiled(b: Builder, x: Value, axis: int, times: int) -> Value:
    """Repeat an axis as a whole."""
    name, stored, dim = along(b, x, axis)
    tiles = b.emit("Tile", [name], resized(stored, dim, stored[dim] * times), {0: dim, 1: times})
    return b.reshape(tiles, resized(x.shape, axis, x.shape[axis] * times))


@lower("Tile", since=13)
def tile(b: Builder, input: Value, repeats: Value) -> Value:
    """Emit Tile, axis by axis."""
    result = input
    for axis, times in enumerate(constant_ints(repeats, "repeats")):
        result = tiled(b, result, axis, times) if times != 1 else result
    return result


@lower("Expand", since=13)
def expand(b: Builder, input: Value, shape: Value) -> Value:
    """Emit Tile, axis by axis."""
    return expanded(b, input, b.out_shape())


def expanded(b: Builder, x: Value, shape: Shape) -> Value:
    """Broadcast to a shape."""
    if x.const is not None:
        return b.constant(np.ascontiguousarray(np.broadcast_to(x.const, shape)))
    x = b.reshape(x, (*(1,) * (len(shape) - x.rank), *x.shape))
    for axis, size in enumerate(shape):
        x = tiled(b, x, axis, size) if x.shape[axis] != size else x
    return x


@lower("Pad", since=21)
def pad(b: Builder, data: Value, constant_value: Value | None, *, amounts: PadAmounts, mode: str) -> Value:
    """Emit Padding, axis by axis. The other modes join pieces of the input by Concat."""
    if constant_value is not None and constant_value.const is None:
        raise Inexpressible("the model computes the value that it pads with; it must be constant")
    filled = float(np.asarray(constant_value.const).ravel()[0]) if constant_value is not None else 0.0
    for axis, (begin, count) in enumerate(zip(amounts.begin, amounts.shape, strict=True)):
        data = cut(b, data, axis, begin, count)
    for axis, (before, after) in enumerate(amounts.added):
        if before or after:
            data = padded(b, data, axis, before, after, mode, filled)
    return data


def padded(
    b: Builder, x: Value, axis: int, before: int, after: int, mode: str = "constant", filled: float = 0.0
) -> Value:
    """Add elements to both ends of an axis."""
    shape = resized(x.shape, axis, x.shape[axis] + before + after)
    if mode != "constant":
        parts = []
        for part in pad_parts(mode, x.shape[axis], before, after):
            piece = cut(b, x, axis, part.begin, part.count) if part.count and part.times else None
            if piece is not None and part.is_reversed:
                piece = flipped(b, piece, axis)
            if piece is not None and part.times > 1:
                piece = tiled(b, piece, axis, part.times)
            parts.append(piece)
        pieces = [piece for piece in (parts[0], x, parts[1]) if piece is not None]
        return joined(b, pieces, axis)
    if not np.isfinite(filled):
        raise Inexpressible(f"it pads with {filled}, which a .param file can't hold")
    outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    name = b.blob(x, (outer, x.shape[axis], inner))
    stored = (outer, shape[axis], inner)
    return b.reshape(b.emit("Padding", [name], stored, {0: before, 1: after, 5: filled}), shape)


@lower("DepthToSpace", since=13)
def depth_to_space(b: Builder, input: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Emit Permute between two shapes of the same blob."""
    n, c, h, w = input.shape
    s, depth = blocksize, c // blocksize**2
    if mode == "CRD":
        return transposed(b, b.reshape(input, (n, depth, s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return transposed(b, b.reshape(input, (n, s, s, depth, h, w)), (0, 3, 4, 1, 5, 2))


@lower("SpaceToDepth", since=13)
def space_to_depth(b: Builder, input: Value, *, blocksize: int) -> Value:
    """Emit Permute between two shapes of the same blob."""
    n, c, h, w = input.shape
    s = blocksize
    return transposed(b, b.reshape(input, (n, c, h // s, s, w // s, s)), (0, 3, 5, 1, 2, 4))
