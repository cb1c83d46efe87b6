"""Constant integers of a node: axes of reductions, ranges of Slice, indices of Gather, ScatterND and OneHot,
and the mask of Trilu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


class NodeInput(Protocol):
    """Handle of a target for a node's input: its shape, and its array if it is constant."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Static shape, in ONNX's order of axes."""

    @property
    def const(self) -> Array | None:
        """Array of a constant in ONNX's order of axes; None if the model computes the value."""


def constant_ints(value: NodeInput, name: str) -> tuple[int, ...]:
    """Return the integers of a constant input of rank 0 or 1.

    Raises:
        Inexpressible: the model computes it.
    """
    if value.const is None:
        raise Inexpressible(f"the model computes its {name}; they must be constant")
    return tuple(int(n) for n in np.atleast_1d(value.const).ravel())


def constant_scalar(value: NodeInput, name: str) -> int:
    """Return the integer of a constant input with one element.

    Raises:
        Inexpressible: the model computes it.
    """
    if value.const is None:
        raise Inexpressible(f"the model computes its {name}; it must be constant")
    return int(np.asarray(value.const).ravel()[0])


class GatheredRange(NamedTuple):
    """A Gather of consecutive indices as a slice: ``shape`` elements of the data from ``begin`` on."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]


class OneHotArguments(NamedTuple):
    """Arguments of a OneHot: the classes it compares with and the values it writes.

    Attributes:
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
        sizes: Length of the axis of each index; broadcasts against ``indices``.
    """
    return np.where(indices < 0, indices + sizes, indices).astype(np.int32)


def gathered_shape(data_shape: Sequence[int], indices_shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the shape of a Gather's output; ``axis`` is non-negative."""
    return (*data_shape[:axis], *indices_shape, *data_shape[axis + 1 :])


def gathered_range(data_shape: Sequence[int], indices: Array | None, axis: int) -> GatheredRange | None:
    """Return the slice equal to a Gather, or None if its indices are computed or not consecutive.

    Args:
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
    """Decode a OneHot."""
    if depth.const is None or values.const is None:
        raise Inexpressible("the model computes its depth or values; they must be constant")
    size, rank = constant_scalar(depth, "depth"), len(indices_shape)
    axis %= rank + 1
    classes = np.arange(size, dtype=np.int32).reshape(-1, *(1,) * (rank - axis))
    off, on = (np.asarray(values.const)[i : i + 1] for i in (0, 1))
    return OneHotArguments(size, off, on, classes, (*indices_shape[:axis], 1, *indices_shape[axis:]))


def trilu_mask(data_shape: Sequence[int], k: NodeInput | None, upper: int) -> Array:
    """Return the mask of elements that Trilu keeps, bool [rows, columns]: the last two axes of the data."""
    rows, columns = data_shape[-2:]
    shift = 0 if k is None else constant_scalar(k, "k")
    shift = max(-rows - 1, min(shift - 1 if upper else shift, columns))  # numpy takes none of 2^63
    below = np.tri(rows, columns, k=shift, dtype=bool)
    return ~below if upper else below


class SliceRanges(NamedTuple):
    """Range of a Slice, one entry for each axis of the data: ``data[begin::step]`` cut to ``shape``.

    Attributes:
        step: Distance to the next element, positive.
        reversed_axes: Axes that are reversed afterwards: those with a negative step.
    """

    begin: tuple[int, ...]
    step: tuple[int, ...]
    shape: tuple[int, ...]
    reversed_axes: tuple[int, ...]


def slice_ranges(
    data_shape: Sequence[int],
    starts: NodeInput,
    ends: NodeInput,
    axes: NodeInput | None = None,
    steps: NodeInput | None = None,
) -> SliceRanges:
    """Decode a Slice. Arguments are the node's inputs."""
    rank = len(data_shape)
    first = constant_ints(starts, "starts")
    last = constant_ints(ends, "ends")
    sliced_axes = tuple(range(len(first))) if axes is None else constant_ints(axes, "axes")
    strides = (1,) * len(first) if steps is None else constant_ints(steps, "steps")
    begin, step, shape, reversed_axes = [0] * rank, [1] * rank, list(data_shape), []
    for axis, low, high, stride in zip(sliced_axes, first, last, strides, strict=True):
        axis %= rank
        positions = range(*slice(low, high, stride).indices(data_shape[axis]))  # clamps as ONNX does
        shape[axis] = len(positions)
        if stride < 0:
            reversed_axes.append(axis)
            positions = positions[::-1]
        if len(positions):
            begin[axis], step[axis] = positions[0], abs(stride)
    return SliceRanges(tuple(begin), tuple(step), tuple(shape), tuple(reversed_axes))


def slice_ends(begin: Sequence[int], step: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the end of the range on each axis: one past the last element.

    >>> slice_ends((1, 0), (2, 1), (3, 4))
    (6, 4)
    """
    return tuple(start + (n - 1) * s + 1 for start, n, s in zip(begin, shape, step, strict=True))


def slice_objects(begin: Sequence[int], step: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the ranges as a numpy index."""
    ends = slice_ends(begin, step, shape)
    return tuple(slice(start, end, s) for start, end, s in zip(begin, ends, step, strict=True))


def reduced_axes(rank: int, axes: NodeInput | None, noop_with_empty_axes: int) -> tuple[int, ...] | None:
    """Return the axes of ReduceSum, ReduceMean ...: non-negative, sorted, each once.

    Returns:
        None if nothing is reduced: each element is a reduction of its own.
    """
    raw_axes = constant_ints(axes, "axes") if axes is not None else ()
    if not raw_axes:
        return None if noop_with_empty_axes or rank == 0 else tuple(range(rank))
    return tuple(sorted({axis % rank for axis in raw_axes}))


def axes_from(axis: int, rank: int) -> tuple[int, ...]:
    """Return ``axis`` and all axes after it, which LayerNormalization and RMSNormalization reduce.

    >>> axes_from(-2, 4)
    (2, 3)
    """
    return tuple(range(axis % rank, rank))
