"""ScatterND and ScatterElements."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.index_arguments import has_repeats, refuse_repeats
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import identity
from edgekit_tflite.ops_index import element_positions, wrapped_nd
from edgekit_tflite.ops_shape import strided_slice

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
    """Put each update at its index in ``x``, or combine it with the value there; indices are unique."""
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
