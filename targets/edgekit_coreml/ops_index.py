"""Gather, GatherND, GatherElements, ScatterND, ScatterElements, OneHot, Trilu."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.compiler.lowering.index_arguments import (
    gathered_range,
    gathered_shape,
    non_negative,
    one_hot_arguments,
    refuse_repeats,
    trilu_mask,
)
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_logic import select
from edgekit_coreml.ops_math import to_dtype
from edgekit_coreml.ops_shape import strided_slice

MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}
"""ONNX's reduction -> Core ML's mode."""


def unvalidated(b: Builder) -> dict[str, Any]:
    """Return the argument that turns off index checks at run time, which iOS 17 and later require."""
    return {"validate_indices": False} if b.ios >= 17 else {}


def wrapped(b: Builder, indices: Value, sizes: Array) -> Value:
    """Return the indices with the negative ones, which count from the end, as non-negative ones.

    ``sizes``: int32, broadcasts against ``indices``: the length of what each one points into.
    """
    if indices.const is not None:
        return b.constant(non_negative(indices.const, sizes), "int32")
    indices = to_dtype(b, indices, "int32")
    negative = b.binary("less", indices, b.scalar(0, "int32"))
    return select(b, negative, b.binary("add", indices, b.constant(sizes)), indices)


@lower("Gather", since=13)
def gather(b: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """gather along any axis; a slice, which the Neural Engine takes, for consecutive constant indices."""
    axis %= data.rank
    if data.const is not None and indices.const is not None:
        return b.constant(np.take(data.const, indices.const.astype(np.int64), axis), data.dtype)
    shape = gathered_shape(data.shape, indices.shape, axis)
    idx = wrapped(b, indices, np.asarray(data.shape[axis], np.int32))
    span = gathered_range(data.shape, idx.const, axis)
    if span is not None:
        return b.reshape(strided_slice(b, data, span.begin, (1,) * data.rank, span.shape), shape)
    flat = idx if idx.rank == 1 else b.reshape(idx, (idx.size,))
    out = b.emit("gather", x=data, indices=flat, axis=axis, **unvalidated(b))
    return b.reshape(out, shape)


@lower("GatherND", since=13)
def gather_nd(b: Builder, data: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """gather_nd. Booleans, which it does not take, as int32."""
    if data.dtype == "bool":
        return to_dtype(b, gather_nd(b, to_dtype(b, data, "int32"), indices, batch_dims=batch_dims), "bool")
    depth = indices.shape[-1]
    idx = wrapped(b, indices, np.array(data.shape[batch_dims : batch_dims + depth], np.int32))
    if batch_dims == 0:
        return b.emit("gather_nd", x=data, indices=idx, **unvalidated(b))
    return b.emit("gather_nd", x=data, indices=idx, batch_dims=batch_dims, **unvalidated(b))


@lower("GatherElements", since=13)
def gather_elements(b: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """gather_along_axis of as much of the data as the indices cover."""
    axis %= data.rank
    idx = wrapped(b, indices, np.asarray(data.shape[axis], np.int32))
    covered = tuple(n if a == axis else m for a, (n, m) in enumerate(zip(data.shape, idx.shape, strict=True)))
    part = strided_slice(b, data, (0,) * data.rank, (1,) * data.rank, covered)
    return b.emit("gather_along_axis", x=part, indices=idx, axis=axis, **unvalidated(b))


@lower("ScatterND", since=18)
def scatter_nd(b: Builder, data: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """scatter_nd."""
    idx = wrapped(b, indices, np.array(data.shape[: indices.shape[-1]], np.int32))
    refuse_repeats(idx.const, reduction)
    return b.emit(
        "scatter_nd", data=data, indices=idx, updates=updates, mode=_mode(reduction), **unvalidated(b)
    )


@lower("ScatterElements", since=18)
def scatter_elements(
    b: Builder, data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """scatter_along_axis, where the indices cover the data but along the axis; else scatter_nd."""
    axis %= data.rank
    idx = wrapped(b, indices, np.asarray(data.shape[axis], np.int32))
    covers = all(n == m for a, (n, m) in enumerate(zip(data.shape, idx.shape, strict=True)) if a != axis)
    mode = _mode(reduction)
    if covers:
        return b.emit(
            "scatter_along_axis", data=data, indices=idx, updates=updates, axis=axis, mode=mode,
            **unvalidated(b),
        )  # fmt: skip
    grid = [b.constant(np.asarray(g, np.int32)) for g in np.indices(indices.shape)]
    coordinates = [idx if a == axis else grid[a] for a in range(data.rank)]
    parts = [b.reshape(column, (*indices.shape, 1)) for column in coordinates]
    positions = b.emit("concat", values=parts, axis=indices.rank)
    flat = b.reshape(positions, (indices.size, data.rank))
    new = b.reshape(updates, (indices.size,))
    return b.emit("scatter_nd", data=data, indices=flat, updates=new, mode=mode, **unvalidated(b))


def _mode(reduction: str) -> str:
    if reduction not in MODES:
        raise Inexpressible(f"reduction {reduction!r} is not supported by Core ML")
    return MODES[reduction]


@lower("OneHot", since=11)
def one_hot(b: Builder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """Compare with the range 0 to depth - 1, then select one of the two values."""
    arguments = one_hot_arguments(indices.shape, depth, values, axis)
    idx = wrapped(b, to_dtype(b, indices, "int32"), np.asarray(arguments.depth, np.int32))
    column = b.reshape(idx, arguments.indices_shape)
    hit = b.binary("equal", column, b.constant(arguments.classes))
    off, on = (b.constant(array[0], values.dtype) for array in (arguments.off, arguments.on))
    return select(b, hit, on, off)


@lower("Trilu", since=14)
def trilu(b: Builder, input: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    """select by a constant mask."""
    mask = trilu_mask(input.shape, k, upper)
    # Selecting, not multiplying: what is cut off may be infinite.
    return select(b, b.constant(mask), input, b.scalar(0, input.dtype))
