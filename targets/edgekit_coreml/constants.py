"""Constants in the program, each stored once: as values, as palette indices, or as integers.

A palette is a small table, found by k-means in one dimension, whose 16 or 64 values represent all. From
iOS 18 on each GROUP output channels have a table of their own; before, one table serves a whole tensor.
Apple's advice is groups of 8 or more: more tables than that leave the Neural Engine's fast path.
https://apple.github.io/coremltools/docs-guides/source/opt-palettization-overview.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from edgekit.compiler.lowering.fp16_weights import FP16_MIN_ELEMENTS
from edgekit.compiler.model.rewriting import fingerprint, same_bits
from edgekit.tensor_spec import Array
from edgekit_coreml.values import Packed, Shape, narrowed

GROUPED_IOS = 18
"""The first with more than one table for a tensor."""
GROUP = 16
"""Output channels that share a table."""
ROUNDS = 60
"""Of k-means; it ends earlier if nothing moves."""


class Constants:
    """Constants that have been placed in one program.

    ``palette_bits``: 4 or 6: large weights are indices into a table of 16 or 64 values. 0 means plain values.
    """

    def __init__(self, mil: Any, ios: int, palette_bits: int, new_name: Callable[[], str]) -> None:
        self._mil = mil
        self._ios = ios
        self._palette_bits = palette_bits
        self._new_name = new_name
        self._arrays: dict[tuple[bytes, str, Shape], Any] = {}
        self._views: dict[Hashable, tuple[Any, Array]] = {}
        self._packed: dict[tuple[object, ...], list[tuple[Packed, Any]]] = {}

    def array(self, array: Array, dtype: str) -> Any:
        """Return a constant of these values as ``dtype``, a numpy name."""
        # Layers that share weights give the same memory: it is narrowed and hashed once. An address stays its
        # own while the array is held.
        view = (array.__array_interface__["data"][0], array.strides, array.shape, array.dtype.name, dtype)
        if view not in self._views:
            self._views[view] = (self._stored(narrowed(array, dtype)), array)
        return self._views[view][0]

    def _stored(self, array: Array) -> Any:
        array = np.array(array, order="C")  # a copy of rank 0 too: what coremltools keeps must not change
        key = (hashlib.sha256(array.tobytes()).digest(), array.dtype.name, array.shape)
        if key not in self._arrays:
            large = array.dtype.kind == "f" and array.ndim >= 2 and array.size >= FP16_MIN_ELEMENTS
            stored = array if array.ndim else array[()]
            palette = self._palette(array) if self._palette_bits and large else None
            self._arrays[key] = palette or self._mil.const(val=stored, name=self._new_name())
        return self._arrays[key]

    def packed(self, packed: Packed, dtype: str) -> Any:
        """Return a constant stored as integers and read as floats; equal ones are stored once."""
        scales = (packed.scale.tobytes(), packed.zero_point.tobytes(), packed.axis, packed.bits)
        alike = self._packed.setdefault((fingerprint(packed.data), *scales, dtype), [])
        for other, built in alike:
            if other is packed or same_bits(other.data, packed.data):
                return built
        built = self._blocks(packed, dtype) if packed.bits else self._affine(packed, dtype)
        alike.append((packed, built))
        return built

    def _affine(self, packed: Packed, dtype: str) -> Any:
        one = packed.scale.size == 1
        scale = narrowed(packed.scale, dtype)
        zero = packed.zero_point.astype(packed.data.dtype)
        return self._mil.constexpr_affine_dequantize(
            quantized_data=packed.data, scale=scale[0] if one else scale, axis=packed.axis,
            zero_point=zero[0] if one else zero, name=self._new_name(),
        )  # fmt: skip

    def _blocks(self, packed: Packed, dtype: str) -> Any:
        narrow = _narrow("int" if packed.data.dtype == np.int8 else "uint", packed.bits)
        offset = packed.zero_point.astype(narrow) if np.any(packed.zero_point) else None
        return self._mil.constexpr_blockwise_shift_scale(
            data=packed.data.astype(narrow), scale=narrowed(packed.scale, dtype), offset=offset,
            name=self._new_name(),
        )  # fmt: skip

    def _palette(self, array: Array) -> Any:
        count = 1 << self._palette_bits
        if self._ios >= GROUPED_IOS:
            tables, indices = grouped_tables(array, count)
            return self._mil.constexpr_lut_to_dense(
                indices=indices.astype(_narrow("uint", self._palette_bits)), lut=tables.astype(array.dtype),
                name=self._new_name(),
            )  # fmt: skip
        table, indices = table_of(array, count)
        bits = indices.reshape(-1, 1) >> np.arange(self._palette_bits, dtype=np.uint8) & 1
        return self._mil.constexpr_lut_to_dense(
            indices=np.packbits(bits.ravel(), bitorder="little"), lut=table.astype(array.dtype),
            shape=np.array(array.shape, np.uint32), name=self._new_name(),
        )  # fmt: skip


def _narrow(kind: str, bits: int) -> Any:
    from coremltools.converters.mil.mil import types

    return types.nptype_from_builtin(types.string_to_builtin(f"{kind}{bits}"))


def table_of(values: Array, count: int) -> tuple[Array, Array]:
    """``count`` values, ascending, that represent all with the least squared error that Lloyd's rounds find.

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
