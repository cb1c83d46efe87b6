"""Layouts as permutations: a value's stored tensor is its logical (ONNX) array transposed by ``perm``.

    physical = logical.transpose(perm)        physical axis i holds logical axis perm[i]

An ONNX Transpose is then a new perm without work. All functions here are pure and know the logical axes;
they draw no conclusions from sizes, except that an axis of size 1 may be anywhere for free.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Perm = tuple[int, ...]
Shape = tuple[int, ...]


def identity(rank: int) -> Perm:
    """Return the source's own order of axes."""
    return tuple(range(rank))


def channels_last(rank: int) -> Perm:
    """Return the perm to N, spatial axes, C, as for TFLite's convolutions, from ONNX's N, C, spatial axes.

    >>> channels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


def physical(shape: Sequence[int], perm: Perm) -> Shape:
    """Return the stored shape of a value of logical ``shape``."""
    return tuple(shape[axis] for axis in perm)


def transposed(perm: Perm, order: Sequence[int]) -> Perm:
    """Return the perm of ``x.transpose(order)`` if it is stored like ``x``, whose perm is ``perm``.

    >>> transposed((0, 2, 3, 1), (0, 2, 3, 1))
    (0, 1, 2, 3)
    """
    indices = {axis: new for new, axis in enumerate(order)}
    return tuple(indices[axis] for axis in perm)


def same_order(shape: Sequence[int], a: Perm, b: Perm) -> bool:
    """Check whether both perms store the same bytes: they differ only in the places of axes of size 1."""
    if any(size == 0 for size in shape):
        return True
    return [axis for axis in a if shape[axis] != 1] == [axis for axis in b if shape[axis] != 1]


def axis_groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Group neighbouring axes of ``a`` and ``b``, as small as possible, by equal elements in a reshape.

    Axes of size 1 are left out: they belong to no group.

    >>> axis_groups((1, 6, 4, 5), (2, 3, 20))
    [([1], [0, 1]), ([2, 3], [2])]
    """
    left = [i for i, size in enumerate(a) if size != 1]
    right = [j for j, size in enumerate(b) if size != 1]
    if any(size == 0 for size in a):
        return [(left, right)]
    groups: list[tuple[list[int], list[int]]] = []
    while left and right:
        group_a, group_b = [left.pop(0)], [right.pop(0)]
        size_a, size_b = a[group_a[0]], b[group_b[0]]
        while size_a != size_b:
            if size_a < size_b:
                group_a.append(left.pop(0))
                size_a *= a[group_a[-1]]
            else:
                group_b.append(right.pop(0))
                size_b *= b[group_b[-1]]
        groups.append((group_a, group_b))
    return groups


def reshape_perms(a: Sequence[int], perm: Perm, b: Sequence[int]) -> tuple[Perm, Perm]:
    """Plan the reshape of a value of logical shape ``a``, stored by ``perm``, to logical shape ``b``.

    Returns:
        The perm the value must have for its bytes to be reshaped as they are (``same_order`` with ``perm``
        when nothing moves: each group of axes is stored together and in order), and the perm of the result.
    """
    groups = axis_groups(a, b)
    group_of = {axis: index for index, (axes, _) in enumerate(groups) for axis in axes}
    order: list[int] = []  # groups as they first appear in storage
    for axis in perm:
        if a[axis] != 1 and group_of[axis] not in order:
            order.append(group_of[axis])
    ones = [axis for axis in perm if a[axis] == 1]
    needed = (*ones, *(axis for index in order for axis in groups[index][0]))
    return needed, _with_ones([axis for index in order for axis in groups[index][1]], b)


def grouped_perm(a: Sequence[int], b: Sequence[int], result: Perm) -> Perm:
    """Return the perm in which logical shape ``a`` can be reshaped to shape ``b`` stored by ``result``.

    ``result`` must keep every group together, which ``can_group`` checks.
    """
    first = {axes_b[0]: axes_a for axes_a, axes_b in axis_groups(a, b) if axes_b}
    return _with_ones([axis for out in result if out in first for axis in first[out]], a)


def _with_ones(order: list[int], shape: Sequence[int]) -> Perm:
    """Insert the axes of size 1 into ``order``, each after its logical neighbour on the left."""
    full = list(order)
    for axis, size in enumerate(shape):
        if size == 1:
            full.insert(full.index(axis - 1) + 1 if axis > 0 else 0, axis)
    return tuple(full)


def can_group(a: Sequence[int], b: Sequence[int], result: Perm) -> bool:
    """Check whether ``result`` stores each axis group of the reshape ``a`` -> ``b`` together and in order."""
    stored = [axis for axis in result if b[axis] != 1]
    for _, axes in axis_groups(a, b):
        indices = [stored.index(axis) for axis in axes]
        if indices != list(range(indices[0], indices[0] + len(axes))) if indices else False:
            return False
    return True


def collapsed(shapes: Sequence[Shape]) -> list[Shape]:
    """Merge neighbouring axes of right-aligned broadcast operands wherever all of them broadcast alike.

    >>> collapsed([(2, 3, 4, 5), (1, 1, 4, 5)])
    [(6, 20), (1, 20)]
    """
    rank = max(len(shape) for shape in shapes)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    merged: list[list[int]] = [[] for _ in shapes]
    previous: tuple[bool, ...] | None = None
    for axis in range(rank):
        sizes = [shape[axis] for shape in aligned]
        full = max(sizes) if 0 not in sizes else 0
        if full == 1:
            continue
        pattern = tuple(size == full for size in sizes)
        for row, size in zip(merged, sizes, strict=True):
            if pattern == previous:
                row[-1] *= size
            else:
                row.append(size)
        previous = pattern
    return [tuple(row) or (1,) for row in merged]


def words(perm: Perm) -> str:
    """Describe a layout in words."""
    if perm == identity(len(perm)):
        return "as in the source"
    if perm == channels_last(len(perm)):
        return "channels last"
    return "in the order of axes " + ", ".join(map(str, perm))


def merged_axes(shape: Shape, order: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Reduce a transposition to the fewest axes: axes that stay together and in order are merged.

    Returns:
        The shape to transpose, and the order of its axes.

    >>> merged_axes((1, 208, 2, 208, 2, 3), (0, 1, 3, 2, 4, 5))  # Focus
    ((208, 2, 208, 6), (0, 2, 1, 3))
    """
    wide = [axis for axis, size in enumerate(shape) if size != 1]
    runs: list[list[int]] = []
    for index in (wide.index(axis) for axis in order if shape[axis] != 1):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    before = sorted(range(len(runs)), key=lambda run: runs[run])
    merged = tuple(prod(shape[wide[index]] for index in runs[run]) for run in before)
    return merged, tuple(before.index(run) for run in range(len(runs)))
