"""Ranges of elements that ONNX's Slice takes from each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edgekit.compiler.lowering.constant_inputs import NodeInput, constant_ints


class SliceRanges(NamedTuple):
    """Range of a Slice, one entry for each axis of the data: ``data[begin::step]`` cut to ``shape``.

    Attributes:
        begin: Index of the first element.
        step: Distance to the next element, positive.
        shape: Number of elements taken.
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
    """Decode a Slice. Arguments are the node's inputs.

    Raises:
        Inexpressible: the model computes one of them.
    """
    rank = len(data_shape)
    first = constant_ints(starts, "starts")
    last = constant_ints(ends, "ends")
    over = tuple(range(len(first))) if axes is None else constant_ints(axes, "axes")
    by = (1,) * len(first) if steps is None else constant_ints(steps, "steps")
    begin, step, shape, reversed_axes = [0] * rank, [1] * rank, list(data_shape), []
    for axis, low, high, stride in zip(over, first, last, by, strict=True):
        axis %= rank
        taken = range(*slice(low, high, stride).indices(data_shape[axis]))  # clamps as ONNX does
        shape[axis] = len(taken)
        if stride < 0:
            reversed_axes.append(axis)
            taken = taken[::-1]
        if len(taken):
            begin[axis], step[axis] = taken[0], abs(stride)
    return SliceRanges(tuple(begin), tuple(step), tuple(shape), tuple(reversed_axes))


def slice_ends(begin: Sequence[int], step: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the end of the range on each axis: one past the last element.

    >>> slice_ends((1, 0), (2, 1), (3, 4))
    (6, 4)
    """
    return tuple(at + (n - 1) * s + 1 for at, n, s in zip(begin, shape, step, strict=True))


def slice_objects(begin: Sequence[int], step: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the ranges as a numpy index."""
    ends = slice_ends(begin, step, shape)
    return tuple(slice(at, end, s) for at, end, s in zip(begin, ends, step, strict=True))
