"""Sparse constants -> dense arrays.

The values of a sparse tensor are stored in the order of a traversal: level by level through its dimensions,
then through the dimensions of the blocks that it may be cut into. A level is dense, where every index is
there, or compressed sparse rows, where the indices that are there are listed: those of position p of the
level before are ``indices[segments[p] : segments[p + 1]]``.

Source: ``SparsityParameters`` in the schema, and its example of a blocked matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_tflite.tables import DamagedFileError, Table

ORDER, BLOCK_MAP, LEVELS = 0, 1, 2
FORMAT, DENSE_SIZE, SEGMENTS_TYPE, SEGMENTS, INDICES_TYPE, INDICES = 0, 1, 2, 3, 4, 5
INDEX_TYPES: Mapping[int, str] = {1: "int32", 2: "uint16", 3: "uint8"}
"""``SparseIndexVector``'s tables, each with one vector of numbers."""
MAX_LEVELS = 16


def dense(
    sparsity: Table, content: memoryview, shape: Sequence[int], dtype: np.dtype[Any], name: str
) -> Array:
    """Decode the dense array of a sparse tensor.

    Raises:
        DamagedFileError: the levels don't fit the shape or the values.
    """
    rank = len(shape)
    order = sparsity.array(ORDER, "int32").tolist()
    block_map = sparsity.array(BLOCK_MAP, "int32").tolist()
    levels = sparsity.tables(LEVELS, f"level of {name}", MAX_LEVELS)
    whole = rank + len(block_map)
    if sorted(order) != list(range(whole)) or len(levels) != whole or len(content) % dtype.itemsize:
        raise _unfit(name)
    blocks = {
        int(axis): levels[order.index(rank + n)].number(DENSE_SIZE, "i") for n, axis in enumerate(block_map)
    }
    cut = len(blocks) == len(block_map) and all(
        0 <= axis < rank and size > 0 and shape[axis] % size == 0 for axis, size in blocks.items()
    )
    if not cut:
        raise _unfit(name)
    full = [n // blocks.get(axis, 1) for axis, n in enumerate(shape)] + [blocks[axis] for axis in block_map]
    positions = np.zeros(1, np.int64)
    flat = np.zeros(1, np.int64)
    for axis, level in zip(order, levels, strict=True):
        stride = math.prod(full[axis + 1 :])
        if level.number(FORMAT, "b"):
            parents, indices = _listed(level, len(positions), full[axis], math.prod(full), name)
            positions, flat = np.arange(len(indices)), flat[parents] + indices * stride
        else:
            size = full[axis]
            if level.number(DENSE_SIZE, "i") != size:
                raise _unfit(name)
            if len(positions) * size > math.prod(full):
                raise _unfit(name)
            steps = np.arange(size)
            positions = (positions[:, None] * size + steps).ravel()
            flat = (flat[:, None] + steps * stride).ravel()
    values = np.frombuffer(content, dtype.newbyteorder("<"))
    if len(values) != len(positions):
        raise _unfit(name)
    expanded = np.zeros(math.prod(full), dtype)
    expanded[flat] = values[positions]
    axes = [
        a for axis in range(rank) for a in (axis, *(rank + n for n, b in enumerate(block_map) if b == axis))
    ]
    return expanded.reshape(full).transpose(axes).reshape(shape)


def _listed(level: Table, positions: int, size: int, limit: int, name: str) -> tuple[Array, Array]:
    """Return the position in the level before and the index, for each index that is stored."""
    segments = _numbers(level, SEGMENTS_TYPE, SEGMENTS, positions + 1, name)
    indices = _numbers(level, INDICES_TYPE, INDICES, limit, name)
    if len(segments) != positions + 1 or segments[0] or segments[-1] != len(indices):
        raise _unfit(name)
    counts = np.diff(segments)
    if (counts < 0).any() or (len(indices) and (indices.min() < 0 or indices.max() >= size)):
        raise _unfit(name)
    return np.repeat(np.arange(positions), counts), indices


def _numbers(level: Table, kind: int, slot: int, limit: int, name: str) -> Array:
    dtype = INDEX_TYPES.get(level.number(kind, "B"))
    table = level.table(slot, f"indices of {name}")
    if dtype is None or table is None:
        raise _unfit(name)
    numbers = table.array(0, dtype)
    if len(numbers) > limit:
        raise _unfit(name)
    return numbers.astype(np.int64)


def _unfit(name: str) -> DamagedFileError:
    return DamagedFileError(f"{name} is sparse, and its levels don't fit its shape or its values")
