"""Ops that change the shape, or the order of elements: Reshape, Transpose, Concat, Split, Slice, Pad ..."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.lowering.index_arguments import SliceRanges, constant_ints, slice_ends, slice_objects
from edgekit.compiler.lowering.op_arguments import VIEWS
from edgekit.compiler.lowering.pad_amounts import PadAmounts, PadPart, pad_parts
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_logic import broadcast


def reshaped(b: Builder, data: Value) -> Value:
    """Emit reshape, or expand_dims and squeeze for scalars."""
    return b.reshape(data, b.out_shape())


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
    """transpose."""
    return b.transpose(data, tuple(perm) if perm is not None else tuple(reversed(range(data.rank))))


@lower("Concat", since=13)
def concat(b: Builder, *inputs: Value, axis: int) -> Value:
    """concat."""
    axis %= inputs[0].rank
    parts = [x for x in inputs if x.shape[axis] != 0] or list(inputs[:1])
    if len(parts) == 1:
        return parts[0]
    return b.emit("concat", values=parts, axis=axis)


@lower("Split", since=18)
def split(
    b: Builder, input: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """Emit split; an empty part is a constant, which only Concat accepts."""
    assert b.node is not None
    axis %= input.rank
    sizes = [b.out_shape(index)[axis] for index in range(len(b.node.outputs))]
    full = [size for size in sizes if size]
    parts = iter((input,) if len(full) == 1 else b.emit_many("split", x=input, split_sizes=full, axis=axis))
    empty = np.zeros([0 if a == axis else n for a, n in enumerate(input.shape)], input.dtype)
    return tuple(next(parts) if size else b.constant(empty, input.dtype) for size in sizes)


def strided_slice(
    b: Builder, x: Value, begin: Sequence[int], step: Sequence[int], shape: tuple[int, ...]
) -> Value:
    """Slice ``x[begin::step]``, cut to ``shape``; steps are positive."""
    if shape == x.shape and all(s == 1 for s in step):
        return x
    if x.const is not None:
        return b.constant(x.const[slice_objects(begin, step, shape)], x.dtype)
    end = list(slice_ends(begin, step, shape))
    return b.emit("slice_by_index", x=x, begin=list(begin), end=end, stride=list(step))


@lower("Slice", since=13)
def slice_op(b: Builder, data: Value, *, ranges: SliceRanges) -> Value:
    """slice_by_index; negative steps also reverse."""
    if 0 in ranges.shape:
        raise Inexpressible("its result is empty; Core ML does not support empty tensors")
    out = strided_slice(b, data, ranges.begin, ranges.step, ranges.shape)
    return b.emit("reverse", x=out, axes=list(ranges.reversed_axes)) if ranges.reversed_axes else out


@lower("Pad", since=13)
def pad(b: Builder, data: Value, constant_value: Value | None, *, amounts: PadAmounts, mode: str) -> Value:
    """Emit pad; wrap, and edge and reflect before the last two axes, by concat; negative pads by slices."""
    data = strided_slice(b, data, amounts.begin, (1,) * data.rank, amounts.shape)
    if not amounts.adds:
        return data
    if mode != "constant":
        return _pad_by_parts(b, data, amounts.added, mode)
    if constant_value is not None and constant_value.const is None:
        raise Inexpressible("the model computes its constant_value; it must be constant")
    fill = 0.0 if constant_value is None or constant_value.const is None else constant_value.const.item()
    if data.is_float:
        flat = [n for pair in amounts.added for n in pair]
        return b.emit("pad", x=data, pad=flat, mode="constant", constant_val=float(fill))
    return _pad_integers(b, data, amounts.added, fill)


def _pad_integers(b: Builder, x: Value, pads: Sequence[tuple[int, int]], fill: float) -> Value:
    for axis, pair in enumerate(pads):
        before, after = (
            b.constant(np.full([n if a == axis else m for a, m in enumerate(x.shape)], fill, x.dtype))
            for n in pair
        )
        parts = [part for part, n in ((before, pair[0]), (x, 1), (after, pair[1])) if n]
        x = b.emit("concat", values=parts, axis=axis) if len(parts) > 1 else x
    return x


def _pad_by_parts(b: Builder, x: Value, pads: Sequence[tuple[int, int]], mode: str) -> Value:
    """Repeat the edge, mirror at it, or wrap around to the other end, axis by axis."""
    for axis, (before, after) in enumerate(pads):
        if before or after:
            front, back = (_part(b, x, axis, p) for p in pad_parts(mode, x.shape[axis], before, after))
            x = b.emit("concat", values=[*front, x, *back], axis=axis)
    return x


def _part(b: Builder, x: Value, axis: int, part: PadPart) -> list[Value]:
    if part.count == 0:
        return []
    start = tuple(part.begin if a == axis else 0 for a in range(x.rank))
    shape = tuple(part.count if a == axis else n for a, n in enumerate(x.shape))
    sliced = strided_slice(b, x, start, (1,) * x.rank, shape)
    return [b.emit("reverse", x=sliced, axes=[axis]) if part.is_reversed else sliced] * part.times


@lower("Expand", since=13)
def expand(b: Builder, input: Value, shape: Value) -> Value:
    """Emit tile; return the input if the shape is unchanged."""
    return broadcast(b, input, b.out_shape())


@lower("Tile", since=13)
def tile(b: Builder, input: Value, repeats: Value) -> Value:
    """tile."""
    times = constant_ints(repeats, "repeats")
    return b.emit("tile", x=input, reps=list(times)) if any(t != 1 for t in times) else input


@lower("DepthToSpace", since=13)
def depth_to_space(b: Builder, input: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """Emit depth_to_space for DCR, pixel_shuffle for CRD."""
    if mode == "DCR":
        return b.emit("depth_to_space", x=input, block_size=blocksize)
    if mode != "CRD":
        raise Inexpressible(f"mode {mode!r} is neither DCR nor CRD")
    return b.emit("pixel_shuffle", x=input, upscale_factor=blocksize)


@lower("SpaceToDepth", since=13)
def space_to_depth(b: Builder, input: Value, *, blocksize: int) -> Value:
    """space_to_depth."""
    return b.emit("space_to_depth", x=input, block_size=blocksize)
