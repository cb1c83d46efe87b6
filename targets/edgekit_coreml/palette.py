"""Weights as numbers of a small table: 16 or 64 values that represent all, found by k-means in one dimension.

From iOS 18 on each GROUP output channels have a table of their own; before, one table serves a whole tensor.
Apple's advice is groups of 8 or more: more tables than that leave the Neural Engine's fast path.
https://apple.github.io/coremltools/docs-guides/source/opt-palettization-overview.html
"""

from __future__ import annotations

import numpy as np

from edgekit.tensor_spec import Array

GROUP = 16
"""Output channels that share a table."""
ROUNDS = 60
"""Of k-means; it ends earlier if nothing moves."""


def table_of(values: Array, count: int) -> tuple[Array, Array]:
    """``count`` values, ascending, that represent all with the least squared error that Lloyd's rounds find.

    Args:
        values: float, any shape.
        count: 16 or 64.

    Returns:
        The table, float32 [count], and uint8 indices into it, of the shape of ``values``.

    >>> table, indices = table_of(np.array([0.1, 5.0, 0.3, 5.2]), 2)
    >>> [round(value, 2) for value in table.tolist()], indices.tolist()
    ([0.2, 5.1], [0, 1, 0, 1])
    """
    flat = np.sort(values.ravel().astype(np.float64))
    sums = np.concatenate([[0.0], np.cumsum(flat)])
    # Between equal shares of the values and equal steps: many values are small, and a few are large.
    shares = np.quantile(flat, (np.arange(count) + 0.5) / count)
    table = (shares + np.linspace(flat[0], flat[-1], count)) / 2
    for _ in range(ROUNDS):
        bounds = np.searchsorted(flat, (table[1:] + table[:-1]) / 2)
        edges = np.concatenate([[0], bounds, [flat.size]])
        sizes = np.diff(edges)
        means = np.where(sizes > 0, np.diff(sums[edges]) / np.maximum(sizes, 1), table)
        if np.array_equal(means, table):
            break
        table = np.sort(means)
    indices = np.searchsorted((table[1:] + table[:-1]) / 2, values.astype(np.float64))
    return table.astype(np.float32), indices.astype(np.uint8)


def grouped_tables(weights: Array, count: int) -> tuple[Array, Array]:
    """Return a table for each GROUP channels of axis 0, or one for all if the channels don't divide.

    Returns:
        The tables, float32 [groups, 1, ..., count, 1], with one axis for each of ``weights`` and two more,
        and uint8 indices of the shape of ``weights``: what MIL's constexpr_lut_to_dense takes.
    """
    groups = weights.shape[0] // GROUP if weights.shape[0] % GROUP == 0 else 1
    parts = [table_of(part, count) for part in np.split(weights, groups)]
    tables = np.stack([table for table, _ in parts])
    shape = (groups, *(1,) * (weights.ndim - 1), count, 1)
    return tables.reshape(shape), np.concatenate([indices for _, indices in parts])
