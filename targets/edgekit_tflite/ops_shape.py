"""Ops that give the same numbers another shape or order: Reshape, Transpose, Concat, Split, Slice, Pad ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.compiler.lowering.index_arguments import SliceRanges, constant_ints, slice_ends, slice_objects
from edgekit.compiler.lowering.op_arguments import VIEWS
from edgekit.compiler.lowering.pad_amounts import PadAmounts, PadPart, pad_parts
from edgekit.diagnostics import Inexpressible
from edgekit_tflite import layout
from edgekit_tflite.builder import Builder, Value, View, lower
from edgekit_tflite.focus import space_to_depth
from edgekit_tflite.ops_conv import filled
from edgekit_tflite.pairs import stored_number

CONCATENATION_INPUTS = 5
"""More operands than this XNNPACK does not join."""
SLICE_RANK = 5
"""The plain kernel's slices have at most as many axes."""


def reshaped(b: Builder, x: Value) -> Value:
    """Emit RESHAPE, after a TRANSPOSE only if axes to be joined or split are not stored together."""
    assert b.node is not None
    shape = b.out_shape()
    if int(np.prod(shape)) != x.size:
        raise Inexpressible(f"{x.shape} and {shape} have different numbers of elements")
    needed, _ = layout.reshape_perms(x.shape, x.perm, shape)
    if not layout.same_order(x.shape, x.perm, needed):
        flat = b.flatten(x, shape)
        if flat is not None:
            return flat
    return b.reshape(x, shape, prefer=b.demand())


for _op in VIEWS:
    lower(_op, since=13)(reshaped)


@lower("Shape", since=19)
def shape_of(b: Builder, data: Value, *, end: int | None = None, start: int = 0) -> Value:
    """Return a constant, because shapes are static."""
    return b.constant(np.array(data.shape[start:end], np.int64))


@lower("Size", since=19)
def size_of(b: Builder, data: Value) -> Value:
    """Return a constant, because shapes are static."""
    return b.constant(np.array(data.size, np.int64))


@lower("Transpose", since=13)
def transpose(b: Builder, data: Value, *, perm: Sequence[int] | None = None) -> Value:
    """Transpose by relabelling axes; no data is moved."""
    return b.transpose(data, tuple(perm) if perm is not None else tuple(reversed(range(data.rank))))


@lower("Concat", since=13)
def concat(b: Builder, *inputs: Value, axis: int) -> Value:
    """Emit CONCATENATION in the layout that moves the fewest bytes; slices of an image: focus.py."""
    axis %= inputs[0].rank
    whole = space_to_depth(b, inputs, axis)
    if whole is not None:
        return whole
    parts = [x for x in inputs if x.shape[axis] != 0] or list(inputs[:1])
    if len(parts) == 1:
        return parts[0]
    perm = b.join(parts, parts[0].rank)
    if b.form is not None and b.form.output is not None:
        parts = [b.requantized(x, b.form.output) for x in parts]
    if any(x.quantization != parts[0].quantization for x in parts):
        raise Inexpressible("its inputs are integers with different scales")
    return joined(b, [b.to(x, perm) for x in parts], axis)


def joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Join values stored alike along ``axis``, in two steps if XNNPACK does not accept one."""
    some = list(parts)
    while len(some) > CONCATENATION_INPUTS:
        groups = -(-len(some) // CONCATENATION_INPUTS)
        size = -(-len(some) // groups)
        some = [joined(b, some[start : start + size], axis) for start in range(0, len(some), size)]
    first = some[0]
    if len(some) == 1:
        return first
    shape = tuple(sum(x.shape[axis] for x in some) if a == axis else n for a, n in enumerate(first.shape))
    out = b.new(shape, first.dtype, first.perm, first.quantization)
    # Its option for an activation is left out: a runtime that is given one forgets it (LiteRT 2.3).
    return b.emit("CONCATENATION", some, out, axis=first.perm.index(axis))


@lower("Split", since=18)
def split(
    b: Builder, input: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """Emit SPLIT if XNNPACK supports it (2 to 4 equal parts), else a SLICE for each part that is read."""
    assert b.node is not None
    axis %= input.rank
    sizes = [b.out_shape(index)[axis] for index in range(len(b.node.outputs))]
    if len(sizes) == 1:
        return (input,)
    used_count = sum(b.wants_output(index) for index in range(len(sizes)))
    if len(set(sizes)) == 1 and len(sizes) <= 4 and used_count == len(sizes) and input.dtype != "bool":
        shape = tuple(sizes[0] if a == axis else n for a, n in enumerate(input.shape))
        outs = [b.new(shape, input.dtype, input.perm, input.quantization) for _ in sizes]
        along = b.constant(np.array(input.perm.index(axis), np.int32))
        b.emit_many("SPLIT", [along, input], outs, num_splits=len(sizes))
        return tuple(outs)
    parts, offset = [], 0
    for size in sizes:
        begin = tuple(offset if a == axis else 0 for a in range(input.rank))
        shape = tuple(size if a == axis else n for a, n in enumerate(input.shape))
        parts.append(strided_slice(b, input, begin, (1,) * input.rank, shape))
        offset += size
    return tuple(parts)


def strided_slice(
    b: Builder, x: Value, begin: Sequence[int], step: Sequence[int], shape: tuple[int, ...]
) -> Value:
    """Slice ``x[begin::step]``, cut to ``shape``; steps are positive. A slice of a slice is one slice."""
    if shape == x.shape and all(s == 1 for s in step):
        return x
    if x.const is not None:
        return b.constant(x.const[slice_objects(begin, step, shape)], x.dtype)
    if x.view is not None:
        begin = tuple(v + start * s for v, start, s in zip(x.view.begin, begin, x.view.step, strict=True))
        step = tuple(v * s for v, s in zip(x.view.step, step, strict=True))
        x = x.view.source
    view = View(x, tuple(begin), tuple(step))
    if all(s == 1 for s in step):
        return replace(_sliced(b, x, begin, shape), view=view)
    stepped = _stepped(b, x, begin, step, shape)
    if stepped is None:
        end = slice_ends(begin, step, shape)
        stored = [b.ints(layout.physical(v, x.perm)) for v in (begin, end, step)]
        out = b.new(shape, x.dtype, x.perm, x.quantization)
        stepped = b.emit("STRIDED_SLICE", [x, *stored], out)
    return replace(stepped, view=view)


def _sliced(b: Builder, x: Value, begin: Sequence[int], shape: tuple[int, ...]) -> Value:
    stored = [b.ints(layout.physical(v, x.perm)) for v in (begin, shape)]
    return b.emit("SLICE", [x, *stored], b.new(shape, x.dtype, x.perm, x.quantization))


def _stepped(
    b: Builder, x: Value, begin: Sequence[int], step: Sequence[int], shape: tuple[int, ...]
) -> Value | None:
    """Take every ``step``-th element as one of each group of ``step``; return None if groups don't fit.

    A stepped axis is split in two, which moves nothing, and a SLICE takes one element of each group. XNNPACK
    does not take a STRIDED_SLICE with steps; this is two to seven times as fast.
    """
    axes = [axis for axis, s in enumerate(step) if s != 1]
    whole = {a: shape[a] * step[a] == x.shape[a] and begin[a] < step[a] for a in axes}
    if x.rank + 1 > SLICE_RANK or any(
        begin[a] + shape[a] * step[a] > x.shape[a] for a in axes if not whole[a]
    ):
        return None
    first = tuple(0 if whole.get(a, False) else start for a, start in enumerate(begin))
    size = tuple(shape[a] * step[a] if a in whole else n for a, n in enumerate(shape))
    if size != x.shape:
        x = _sliced(b, x, first, size)
    for axis in axes:
        count, s, left, right = shape[axis], step[axis], x.shape[:axis], x.shape[axis + 1 :]
        apart = b.reshape(x, (*left, count, s, *right))
        start = (*(0 for _ in left), 0, begin[axis] if whole[axis] else 0, *(0 for _ in right))
        x = b.reshape(_sliced(b, apart, start, (*left, count, 1, *right)), (*left, count, *right))
    return x


@lower("Slice", since=13)
def slice_op(b: Builder, data: Value, *, ranges: SliceRanges) -> Value:
    """SLICE or STRIDED_SLICE; negative steps also REVERSE_V2."""
    if 0 in ranges.shape:
        raise Inexpressible("its result is empty; TFLite does not support empty tensors")
    out = strided_slice(b, data, ranges.begin, ranges.step, ranges.shape)
    if ranges.reversed_axes:
        stored = b.ints([out.perm.index(axis) for axis in ranges.reversed_axes])
        out = b.emit("REVERSE_V2", [out, stored], b.like(out))
    return out


@lower("Pad", since=13)
def pad(b: Builder, data: Value, constant_value: Value | None, *, amounts: PadAmounts, mode: str) -> Value:
    """PAD, PADV2, MIRROR_PAD; edge and wrap by CONCATENATION; negative pads by SLICE."""
    data = strided_slice(b, data, amounts.begin, (1,) * data.rank, amounts.shape)
    if not amounts.adds:
        return data
    if mode in ("edge", "wrap"):
        return _pad_by_slices(b, data, amounts.added, mode)
    stored_pads = [amounts.added[axis] for axis in data.perm]
    if mode == "reflect":
        stored = b.constant(np.array(stored_pads, np.int32))
        out = b.new(amounts.out_shape, data.dtype, data.perm, data.quantization)
        return b.emit("MIRROR_PAD", [data, stored], out, mode="REFLECT")
    if constant_value is not None and constant_value.const is None:
        stored = b.constant(np.array(stored_pads, np.int32))
        value = b.reshape(constant_value, (1,))
        return b.emit("PADV2", [data, stored, value], b.new(amounts.out_shape, data.dtype, data.perm))
    fill = np.zeros(1) if constant_value is None or constant_value.const is None else constant_value.const
    number = float(np.asarray(fill).ravel()[0])
    if b.form is not None and data.quantization is not None:
        number = stored_number(number, data.quantization)
    return filled(b, data, stored_pads, number, amounts.out_shape)


def _pad_by_slices(b: Builder, x: Value, pads: Sequence[tuple[int, int]], mode: str) -> Value:
    for axis, (before, after) in enumerate(pads):
        front, back = (_part(b, x, axis, p) for p in pad_parts(mode, x.shape[axis], before, after))
        x = joined(b, [*front, x, *back], axis)
    return x


def _part(b: Builder, x: Value, axis: int, part: PadPart) -> list[Value]:
    if part.count == 0:
        return []
    start = tuple(part.begin if a == axis else 0 for a in range(x.rank))
    shape = tuple(part.count if a == axis else n for a, n in enumerate(x.shape))
    return [strided_slice(b, x, start, (1,) * x.rank, shape)] * part.times


@lower("Expand", since=13)
def expand(b: Builder, input: Value, shape: Value) -> Value:
    """Emit BROADCAST_TO, by merged axes if there are many; return the input if the shape is unchanged."""
    target = b.out_shape()
    if input.const is not None:
        return b.constant(np.broadcast_to(input.const, target), input.dtype)
    if target == input.shape:
        return input
    x = b.reshape(input, (1,) * (len(target) - input.rank) + input.shape)
    stored = layout.physical(x.shape, x.perm), layout.physical(target, x.perm)
    narrow, whole = layout.collapsed(stored)
    source = b.view_as(x, narrow)
    out = b.new(whole, x.dtype, quantization=x.quantization)
    result = b.emit("BROADCAST_TO", [source, b.ints(whole)], out)
    return b.stored_as(result, target, x.perm)


@lower("Tile", since=13)
def tile(b: Builder, input: Value, repeats: Value) -> Value:
    """TILE."""
    times = constant_ints(repeats, "repeats")
    shape = tuple(n * t for n, t in zip(input.shape, times, strict=True))
    stored = b.ints(layout.physical(times, input.perm))
    return b.emit("TILE", [input, stored], b.new(shape, input.dtype, input.perm, input.quantization))


@lower("DepthToSpace", since=13)
def depth_to_space(b: Builder, input: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Emit DEPTH_TO_SPACE for DCR, RESHAPE and one TRANSPOSE for CRD."""
    n, c, h, w = input.shape
    size = blocksize
    if mode == "DCR":
        x = b.to(input, layout.channels_last(4))
        out = b.new((n, c // size**2, h * size, w * size), x.dtype, x.perm, x.quantization)
        return b.emit("DEPTH_TO_SPACE", [x], out, block_size=size)
    if mode != "CRD":
        raise Inexpressible(f"mode {mode!r} is neither DCR nor CRD")
    apart = b.reshape(input, (n, c // size**2, size, size, h, w))
    return reshaped(b, b.transpose(apart, (0, 1, 4, 2, 5, 3)))


@lower("SpaceToDepth", since=13)
def space_to_depth_op(b: Builder, input: Value, *, blocksize: int) -> Value:
    """SPACE_TO_DEPTH."""
    n, c, h, w = input.shape
    x = b.to(input, layout.channels_last(4))
    shape = (n, c * blocksize**2, h // blocksize, w // blocksize)
    return b.emit("SPACE_TO_DEPTH", [x], b.new(shape, x.dtype, x.perm, x.quantization), block_size=blocksize)
