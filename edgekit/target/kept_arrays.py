"""Large arrays that are filled again once nobody holds them.

The C library returns an array of 1 to 6 MB to the system when it is freed, and the next frame's costs a page
fault for every 4 kB, 2 to 3 us each: up to five times what is computed in it.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    import numpy.typing as npt

SMALL_BYTES = 128 << 10
"""Smaller arrays come from the heap and are not returned (glibc: M_MMAP_THRESHOLD)."""
MAX_KEPT = 8
"""Arrays by thread. A frame needs two; the others are for results that the caller still holds."""


class _Kept(threading.local):
    def __init__(self) -> None:
        self.arrays: list[Array] = []


_kept = _Kept()


def kept_array(shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
    """Return an array with any values, which neither the caller nor anybody else holds yet.

    What was returned before is returned again only if no variable, view or thread refers to it any more.
    """
    wanted, dtype = tuple(shape), np.dtype(dtype)
    if math.prod(wanted) * dtype.itemsize < SMALL_BYTES:
        return np.empty(wanted, dtype)
    arrays = _kept.arrays
    for index in range(len(arrays)):
        if _references(arrays, index) == FREE:
            array = arrays[index]
            if array.shape == wanted and array.dtype == dtype:
                return array
    if len(arrays) == MAX_KEPT:
        del arrays[0]
    arrays.append(np.empty(wanted, dtype))
    return arrays[-1]


def kept_copy(values: Array) -> Array:
    """Copy an array of any strides into one of ``kept_array``."""
    array = kept_array(values.shape, values.dtype)
    array[...] = values
    return array


def _references(arrays: Sequence[object], index: int) -> int:
    return sys.getrefcount(arrays[index])


FREE = _references([object()], 0)
"""References to an array that only its list holds; Python 3.14 counts fewer than the releases before."""
