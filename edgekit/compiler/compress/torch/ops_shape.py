"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from edgekit.compiler.compress.torch.graph_program import GraphProgram, Tensor, Value, Values, constant, lower
from edgekit.compiler.compress.torch.ops_products import torch_pads
from edgekit.compiler.lowering.index_arguments import SliceRanges, constant_ints, slice_objects
from edgekit.compiler.lowering.op_arguments import VIEWS
from edgekit.compiler.lowering.pad_amounts import PadAmounts
from edgekit.compiler.lowering.resize_arguments import Resizing, repetition
from edgekit.diagnostics import Inexpressible


def _to_shape(b: GraphProgram, data: Value) -> Values:
    """Emit all elements in their order, in the output's static shape."""
    shape = b.out().shape
    return b.emit(lambda x: x.reshape(shape), data)


for _op in VIEWS:
    lower(_op, since=13)(_to_shape)


@lower("Expand", since=8)
def expand(b: GraphProgram, input: Value, shape: Value) -> Values:
    """Broadcast to the static shape of its output."""
    target_shape = b.out().shape
    return b.emit(lambda x, _: x.expand(target_shape), input, shape)


@lower("Transpose", since=1)
def transpose(b: GraphProgram, data: Value, *, perm: Sequence[int] | None = None) -> Values:
    """Emit a permutation of the axes."""
    order = tuple(perm) if perm is not None else tuple(range(data.rank))[::-1]
    return b.emit(lambda x: x.permute(order), data)


@lower("Concat", since=4)
def concat(b: GraphProgram, *inputs: Value, axis: int) -> Values:
    """Emit the concatenation of the inputs along an axis."""
    return b.emit(lambda *given: torch.cat(given, axis), *inputs)


@lower("Split", since=13)
def split(
    b: GraphProgram,
    input: Value,
    split: Value | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> Values:
    """Emit a split into the lengths of the outputs."""
    count = b.output_count
    sizes = [b.out(index).shape[axis] for index in range(count)]
    return b.emit(lambda x, *_: torch.split(x, sizes, axis), input, split, outputs=count)


@lower("Slice", since=10)
def slice_(b: GraphProgram, data: Value, *, ranges: SliceRanges) -> Values:
    """Emit a slice; negative steps become a flip after positive steps."""
    slices = slice_objects(ranges.begin, ranges.step, ranges.shape)
    if 0 in ranges.shape:
        raise Inexpressible("it has no inputs")

    def run(x: Tensor) -> Tensor:
        part = x[slices]
        return part.flip(ranges.reversed_axes) if ranges.reversed_axes else part

    return b.emit(run, data)


@lower("Pad", since=11)
def pad(
    b: GraphProgram, data: Value, constant_value: Value | None, *, amounts: PadAmounts, mode: Any
) -> Values:
    """Emit a pad with a constant, or with elements of the data by their indices."""
    slices = tuple(slice(begin, begin + n) for begin, n in zip(amounts.begin, amounts.shape, strict=True))
    if mode == "constant":
        if constant_value is not None and constant_value.const is None:
            raise Inexpressible("the model computes its constant_value; it must be constant")
        filler = 0 if constant_value is None or constant_value.const is None else constant_value.const.item()
        sides = torch_pads(amounts.added)
        return b.emit(lambda x: F.pad(x[slices], sides, value=filler), data)
    picked = {
        axis: constant(np.pad(np.arange(n), added, mode))
        for axis, (n, added) in enumerate(zip(amounts.shape, amounts.added, strict=True))
        if any(added)
    }

    def run(x: Tensor) -> Tensor:
        padded = x[slices]
        for axis, indices in picked.items():
            padded = padded.index_select(axis, indices)
        return padded

    return b.emit(run, data)


@lower("Gather", since=1)
def gather(b: GraphProgram, data: Value, indices: Value, *, axis: int = 0) -> Values:
    """Emit elements of one axis; negative indices count from its end."""
    before = (slice(None),) * (axis % data.rank)
    if indices.const is not None:
        picked, size = indices.const, data.shape[axis]
        positions, shape = constant(np.where(picked < 0, picked + size, picked).ravel()), b.out().shape
        return b.emit(lambda x, _: x.index_select(axis, positions).reshape(shape), data, indices)
    return b.emit(lambda x, positions: x[(*before, positions.long())], data, indices)


@lower("Tile", since=6)
def tile(b: GraphProgram, input: Value, repeats: Value) -> Values:
    """Emit the input repeated along its axes."""
    times = constant_ints(repeats, "repeats")
    return b.emit(lambda x, _: x.repeat(times), input, repeats)


@lower("DepthToSpace", since=1)
def depth_to_space(b: GraphProgram, input: Value, *, blocksize: int, mode: str = "DCR") -> Values:
    """Emit a rearrangement of channels into blocks of pixels."""
    n, c, h, w = input.shape
    s, deep = blocksize, c // blocksize**2

    def run(x: Tensor) -> Tensor:
        if mode == "DCR":
            x = x.reshape(n, s, s, deep, h, w).permute(0, 3, 4, 1, 5, 2)
        else:
            x = x.reshape(n, deep, s, s, h, w).permute(0, 1, 4, 2, 5, 3)
        return x.reshape(n, deep, h * s, w * s)

    return b.emit(run, input)


@lower("SpaceToDepth", since=1)
def space_to_depth(b: GraphProgram, input: Value, *, blocksize: int) -> Values:
    """Emit a rearrangement of blocks of pixels into channels."""
    n, c, h, w = input.shape
    s = blocksize

    def run(x: Tensor) -> Tensor:
        blocks = x.reshape(n, c, h // s, s, w // s, s).permute(0, 3, 5, 1, 2, 4)
        return blocks.reshape(n, c * s * s, h // s, w // s)

    return b.emit(run, input)


@lower("Resize", since=13)
def resize(b: GraphProgram, X: Value, *, resizing: Resizing) -> Values:
    """Emit a resize in any mode, one axis after the other: by indices, or by a constant matrix."""
    nearest = resizing.mode == "nearest"
    steps: list[tuple[int, int, Tensor]] = []
    for axis in resizing.changed:
        if nearest:
            picked = resizing.indices(axis)
            times = repetition(picked, X.shape[axis])
            steps.append((axis, times or 0, constant(picked.astype(np.int64))))
        else:
            steps.append((axis, 0, constant(resizing.matrix(axis).T)))
    mask = None if resizing.is_inside.all() else constant(resizing.is_inside)

    def run(x: Tensor) -> Tensor:
        for axis, times, mapping in steps:
            if times:
                x = x.repeat_interleave(times, axis)
            elif nearest:
                x = x.index_select(axis, mapping)
            else:
                x = (x.movedim(axis, -1) @ mapping.to(x.dtype)).movedim(-1, axis)
        return x if mask is None else torch.where(mask, x, resizing.extrapolation_value)

    return b.emit(run, X)
