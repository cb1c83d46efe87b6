"""Gather, GatherND, GatherElements, OneHot, Hardmax, Trilu, ScatterND, ScatterElements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.compiler.lowering.index_arguments import (
    gathered_range,
    gathered_shape,
    has_repeats,
    non_negative,
    one_hot_arguments,
    refuse_repeats,
    trilu_mask,
)
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import identity
from edgekit_tflite.ops_math import to_dtype
from edgekit_tflite.ops_reduce import without_axes
from edgekit_tflite.ops_shape import strided_slice


def wrapped(b: Builder, indices: Value, size: int) -> Value:
    """Return the indices with the negative ones, which count from the end, as non-negative ones."""
    if indices.const is not None:
        return b.constant(non_negative(indices.const, size), "int32")
    indices = to_dtype(b, indices, "int32")
    negative = b.elementwise("LESS", [indices, b.constant(np.zeros(1, np.int32))], "bool")
    shifted = b.binary("ADD", indices, b.constant(np.array([size], np.int32)))
    return b.elementwise("SELECT_V2", [negative, shifted, indices])


@lower("Gather", since=13)
def gather(b: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER along any axis, in any layout; SLICE, which XNNPACK takes, for consecutive constant indices."""
    axis %= data.rank
    if data.const is not None and indices.const is not None:
        return b.constant(np.take(data.const, indices.const.astype(np.int64), axis), data.dtype)
    stored_axis = data.perm.index(axis)
    shape = gathered_shape(data.shape, indices.shape, axis)
    idx = wrapped(b, indices, data.shape[axis])
    span = gathered_range(data.shape, idx.const, axis)
    if span is not None:
        return b.reshape(strided_slice(b, data, span.begin, (1,) * data.rank, span.shape), shape)
    idx = b.to(idx, identity(indices.rank))
    perm: list[int] = []
    for stored in data.perm:
        if stored == axis:
            perm += range(axis, axis + indices.rank)
        else:
            perm.append(stored if stored < axis else stored + indices.rank - 1)
    out = b.new(shape, data.dtype, tuple(perm), data.quantization)
    return b.emit("GATHER", [data, idx], out, axis=stored_axis, batch_dims=0)


@lower("GatherND", since=13)
def gather_nd(b: Builder, data: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """GATHER_ND; batch axes become part of constant indices. Booleans, which it does not take, as int32."""
    if data.dtype == "bool":
        return b.cast(_gather_nd(b, b.cast(data, "int32"), indices, batch_dims), "bool")
    return _gather_nd(b, data, indices, batch_dims)


def _gather_nd(b: Builder, data: Value, indices: Value, batch_dims: int) -> Value:
    idx = indices
    if batch_dims:
        batch = indices.shape[:batch_dims]
        grid = np.indices(batch).reshape(batch_dims, -1).T.reshape(*batch, batch_dims)
        lead = grid.reshape(*batch, *(1,) * (indices.rank - batch_dims - 1), batch_dims)
        full = np.broadcast_to(lead, (*indices.shape[:-1], batch_dims))
        if indices.const is not None:
            idx = b.constant(np.concatenate([full, indices.const], axis=-1), "int32")
        else:
            both = [b.constant(full.astype(np.int32)), b.to(b.cast(indices, "int32"), identity(indices.rank))]
            out = b.new((*full.shape[:-1], batch_dims + indices.shape[-1]), "int32")
            idx = b.emit("CONCATENATION", both, out, axis=indices.rank - 1, fused_activation_function="NONE")
    idx = wrapped_nd(b, idx, data.shape)
    x = b.to(data, identity(data.rank))
    return b.emit("GATHER_ND", [x, b.to(idx, identity(idx.rank))], b.new(b.out_shape(), x.dtype))


def wrapped_nd(b: Builder, indices: Value, shape: tuple[int, ...]) -> Value:
    """Index tuples along the last axis, none of them negative."""
    sizes = np.array(shape[: indices.shape[-1]], np.int32)
    if indices.const is not None:
        return b.constant(non_negative(indices.const, sizes), "int32")
    indices = to_dtype(b, indices, "int32")
    negative = b.elementwise("LESS", [indices, b.constant(np.zeros(1, np.int32))], "bool")
    return b.elementwise("SELECT_V2", [negative, b.binary("ADD", indices, b.constant(sizes)), indices])


@lower("GatherElements", since=13)
def gather_elements(b: Builder, data: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER_ND with full constant indices, else with computed ones along the axis."""
    idx = element_positions(b, data, indices, axis)
    x = b.to(data, identity(data.rank))
    if x.dtype == "bool":
        return b.cast(_gathered_nd(b, b.cast(x, "int32"), idx, indices.shape), "bool")
    return _gathered_nd(b, x, idx, indices.shape)


def _gathered_nd(b: Builder, x: Value, indices: Value, shape: tuple[int, ...]) -> Value:
    return b.emit("GATHER_ND", [x, indices], b.new(shape, x.dtype, None, x.quantization))


def element_positions(b: Builder, data: Value, indices: Value, axis: int) -> Value:
    """Return the full index in ``data`` of each element named along ``axis``, along a last axis."""
    axis %= data.rank
    grid = [np.asarray(g, np.int32) for g in np.indices(indices.shape)]
    idx = wrapped(b, indices, data.shape[axis])
    columns = [idx if a == axis else b.constant(grid[a]) for a in range(data.rank)]
    if all(column.const is not None for column in columns):
        return b.constant(np.stack([np.asarray(column.const) for column in columns], axis=-1), "int32")
    shape = (*indices.shape, 1)
    parts = [b.to(b.reshape(column, shape), identity(len(shape))) for column in columns]
    out = b.new((*indices.shape, len(columns)), "int32")
    return b.emit("CONCATENATION", parts, out, axis=indices.rank, fused_activation_function="NONE")


@lower("OneHot", since=11)
def one_hot(b: Builder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """Compare with the range 0 to depth - 1, then emit SELECT_V2 of the two values."""
    arguments = one_hot_arguments(indices.shape, depth, values, axis)
    idx = wrapped(b, indices if indices.dtype == "int32" else to_dtype(b, indices, "int32"), arguments.depth)
    column = b.reshape(idx, arguments.indices_shape)
    hit = b.elementwise("EQUAL", [column, b.constant(arguments.classes)], "bool")
    off, on = (b.constant(array, values.dtype) for array in (arguments.off, arguments.on))
    return b.elementwise("SELECT_V2", [hit, on, off])


@lower("Hardmax", since=13)
def hardmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """1 where the index is that of ARG_MAX, else 0."""
    axis %= input.rank
    best = b.new(
        tuple(n for a, n in enumerate(input.shape) if a != axis), "int32", without_axes(input.perm, [axis])
    )
    b.emit("ARG_MAX", [input, b.ints([input.perm.index(axis)])], best, output_type="INT32")
    column = b.reshape(best, tuple(1 if a == axis else n for a, n in enumerate(input.shape)))
    line = np.arange(input.shape[axis], dtype=np.int32).reshape(-1, *(1,) * (input.rank - axis - 1))
    return b.cast(b.elementwise("EQUAL", [column, b.constant(line)], "bool"), "float32")


@lower("Trilu", since=14)
def trilu(b: Builder, input: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    """SELECT_V2 by a constant mask."""
    mask = trilu_mask(input.shape, k, upper)
    zero = b.constant(np.zeros(1, np.dtype(input.dtype)))
    # Selecting, not multiplying: what is cut off may be infinite.
    return replace(b.elementwise("SELECT_V2", [b.constant(mask), input, zero]), view=None)


COMBINED = {"max": "MAXIMUM", "min": "MINIMUM", "mul": "MUL"}
COMBINED_ROWS = 64
"""Most updates that are combined one by one: TFLite's SCATTER_ND only adds."""


@lower("ScatterND", since=18)
def scatter_nd(b: Builder, data: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """Emit SCATTER_ND of the updates; without a reduction also of a mask, and SELECT_V2 with the data."""
    return _scattered(b, data, wrapped_nd(b, indices, data.shape), updates, reduction)


@lower("ScatterElements", since=18)
def scatter_elements(
    b: Builder, data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """Lower like ScatterND, with the full index of each element."""
    return _scattered(b, data, element_positions(b, data, indices, axis), updates, reduction)


def _scattered(b: Builder, data: Value, indices: Value, updates: Value, reduction: str) -> Value:
    if reduction not in ("none", "add", *COMBINED):
        raise Inexpressible(f"reduction {reduction!r} is not one of none, add, mul, min, max")
    if data.dtype in ("bool", "int8", "uint8", "int16"):
        result = _scattered(b, b.cast(data, "int32"), indices, b.cast(updates, "int32"), reduction)
        return b.cast(result, data.dtype)
    refuse_repeats(indices.const, reduction)
    indices = b.to(indices, identity(indices.rank))
    x, new = b.to(data, identity(data.rank)), b.to(updates, identity(updates.rank))
    if reduction == "add":
        return b.binary("ADD", x, _spread(b, indices, new, data))
    if reduction == "none" or (indices.const is not None and not has_repeats(indices.const)):
        return _placed(b, x, indices, new, reduction)
    rows = int(np.prod(indices.shape[:-1]))
    if rows > COMBINED_ROWS:
        raise Inexpressible(
            f"reduction {reduction!r} of {rows} updates, of which {COMBINED_ROWS} are combined at most"
        )
    flat_at = b.reshape(indices, (rows, indices.shape[-1]))
    rest = new.shape[indices.rank - 1 :]
    flat = b.reshape(new, (rows, *rest))
    for row in range(rows):
        index = strided_slice(b, flat_at, (row, 0), (1, 1), (1, indices.shape[-1]))
        update = strided_slice(b, flat, (row, *(0 for _ in rest)), (1,) * flat.rank, (1, *rest))
        x = _placed(b, x, b.to(index, identity(2)), b.to(update, identity(flat.rank)), reduction)
    return x


def _spread(b: Builder, indices: Value, new: Value, data: Value) -> Value:
    return b.emit("SCATTER_ND", [indices, new, b.ints(data.shape)], b.new(data.shape, new.dtype))


def _placed(b: Builder, x: Value, indices: Value, new: Value, reduction: str) -> Value:
    spread = _spread(b, indices, new, x)
    if reduction in COMBINED:
        spread = b.binary(COMBINED[reduction], x, spread)
    if indices.const is not None:
        mask: Array = np.zeros(x.shape, bool)
        mask[tuple(np.moveaxis(np.asarray(indices.const, np.int64), -1, 0))] = True
        return b.elementwise("SELECT_V2", [b.constant(mask), spread, x])
    counted = _spread(b, indices, b.constant(np.ones(new.shape, np.int32)), x)
    touched = b.elementwise("GREATER", [counted, b.constant(np.zeros(1, np.int32))], "bool")
    return b.elementwise("SELECT_V2", [touched, spread, x])
