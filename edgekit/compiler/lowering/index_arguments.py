"""Constant indices of Gather, ScatterND and OneHot, and the mask of Trilu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.lowering.constant_inputs import NodeInput, constant_scalar
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


class GatheredRange(NamedTuple):
    """A Gather of consecutive indices as a slice: ``shape`` elements of the data from ``begin`` on."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]


class OneHotArguments(NamedTuple):
    """Arguments of a OneHot: the classes it compares with and the values it writes.

    Attributes:
        depth: Number of classes.
        off: Value where the index is another class, shape (1,).
        on: Value where the index is this class, shape (1,).
        classes: 0 to depth - 1, int32, in a shape that broadcasts along the output's axis of classes.
        indices_shape: Shape of the indices, with a 1 for the axis of classes.
    """

    depth: int
    off: Array
    on: Array
    classes: Array
    indices_shape: tuple[int, ...]


def non_negative(indices: Array, sizes: int | Array) -> Array:
    """Return int32 indices with negative ones, which count from the end of an axis, made non-negative.

    Args:
        indices: Integers.
        sizes: Length of the axis of each index; broadcasts against ``indices``.
    """
    return np.where(indices < 0, indices + sizes, indices).astype(np.int32)


def gathered_shape(data_shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the shape of a Gather's output; ``axis`` is non-negative."""
    return (*data_shape[:axis], *indices_shape, *data_shape[axis + 1 :])


def gathered_range(data_shape: Sequence[int], indices: Array | None, axis: int) -> GatheredRange | None:
    """Return the slice equal to a Gather, or None if its indices are computed or not consecutive.

    Args:
        data_shape: Shape of the data.
        indices: Non-negative indices of any shape.
        axis: Non-negative axis.
    """
    if indices is None or not indices.size:
        return None
    flat = np.asarray(indices).ravel()
    first, count = int(flat[0]), len(flat)
    if not np.array_equal(flat, np.arange(first, first + count)):
        return None
    begin = tuple(first if a == axis else 0 for a in range(len(data_shape)))
    return GatheredRange(begin, tuple(count if a == axis else n for a, n in enumerate(data_shape)))


def has_repeats(indices: Array) -> bool:
    """Return whether non-negative index tuples (the last axis) address an element twice."""
    rows = np.asarray(indices, np.int64).reshape(-1, indices.shape[-1])
    return len(np.unique(rows, axis=0)) != len(rows)


def refuse_repeats(indices: Array | None, reduction: str) -> None:
    """Reject repeated indices: ONNX leaves open which update of an element wins.

    Raises:
        Inexpressible: constant indices name an element twice, and no reduction combines the updates.
    """
    if indices is not None and reduction == "none" and has_repeats(indices):
        raise Inexpressible("its indices contain an element twice, so the result is undefined")


def one_hot_arguments(
    indices_shape: Sequence[int], depth: NodeInput, values: NodeInput, axis: int
) -> OneHotArguments:
    """Decode a OneHot.

    Raises:
        Inexpressible: the model computes depth or values.
    """
    if depth.const is None or values.const is None:
        raise Inexpressible("the model computes its depth or values; they must be constant")
    size, rank = constant_scalar(depth, "depth"), len(indices_shape)
    axis %= rank + 1
    classes = np.arange(size, dtype=np.int32).reshape(-1, *(1,) * (rank - axis))
    off, on = (np.asarray(values.const)[i : i + 1] for i in (0, 1))
    return OneHotArguments(size, off, on, classes, (*indices_shape[:axis], 1, *indices_shape[axis:]))


def trilu_mask(data_shape: Sequence[int], k: NodeInput | None, upper: int) -> Array:
    """Return the mask of elements that Trilu keeps, bool [rows, columns]: the last two axes of the data.

    Raises:
        Inexpressible: the model computes k.
    """
    rows, columns = data_shape[-2:]
    shift = 0 if k is None else constant_scalar(k, "k")
    shift = max(-rows - 1, min(shift - 1 if upper else shift, columns))  # numpy takes none of 2^63
    below = np.tri(rows, columns, k=shift, dtype=bool)
    return ~below if upper else below
