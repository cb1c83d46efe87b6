"""Connected components of a mask, found by its runs: an image has far fewer runs than pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgekit.tensor_spec import Array


class Runs(NamedTuple):
    """The runs of set pixels of a mask, row by row: int64 [runs] each.

    Attributes:
        row: Row of the run.
        first, last: Its columns, both within.
        component: The number of its component, from 0, by the component's first run.
        total: Number of components; an int.
    """

    row: Array
    first: Array
    last: Array
    component: Array
    total: int


def connected_components(mask: Array) -> Runs:
    """Find the components of set pixels that touch by a side or a corner (8-connectivity).

    Args:
        mask: bool [height, width].

    >>> runs = connected_components(np.array([[1, 0, 0, 1], [0, 1, 0, 1]], bool))
    >>> runs.component.tolist(), runs.total
    ([0, 1, 0, 1], 2)
    """
    height, width = mask.shape
    stride = width + 2  # a clear column on both sides: no run touches one of the row above by going around
    padded = np.zeros(height * stride + 1, np.bool_)
    padded[:-1].reshape(height, stride)[:, 1:-1] = mask
    changes = np.flatnonzero(padded[1:] != padded[:-1])
    first, last = changes[0::2] + 1, changes[1::2]
    # A run touches those of the next row that end at or after its column - 1 and begin at or before + 1.
    low = np.searchsorted(last, first - 1 + stride)
    high = np.searchsorted(first, last + 1 + stride, side="right")
    touching = high - low
    above = np.repeat(np.arange(len(first)), touching)
    below = np.arange(len(above)) - np.repeat(np.cumsum(touching) - touching, touching) + low[above]
    roots = _roots(len(first), above, below)
    names, component = np.unique(roots, return_inverse=True)
    row = first // stride
    return Runs(row, first - row * stride - 1, last - row * stride - 1, component.reshape(-1), len(names))


def _roots(count: int, a: Array, b: Array) -> Array:
    """Compute the smallest member of each member's set, where a[i] and b[i] are in the same set: int64
    [count].

    Each round hooks a set's root under the least root that touches it, and shortens every path to one step.
    """
    parent = np.arange(count)
    while len(a):
        one, other = parent[a], parent[b]
        apart = one != other
        a, b, one, other = a[apart], b[apart], one[apart], other[apart]
        np.minimum.at(parent, np.maximum(one, other), np.minimum(one, other))
        while not np.array_equal(shorter := parent[parent], parent):
            parent = shorter
    return parent
