"""Lowered counterpart of an ONNX value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.quantization_parameters import check_integers, stored_type
from edgekit.tensor_spec import Array

Shape = tuple[int, ...]

HALF_LIMIT = 65504.0
"""The largest finite float16."""
MASK_LIMIT = 40000.0
"""What a mask of -inf or beyond float16 becomes: far below every score, and two of them added stay finite.
Apple's engineers say -1e4 to -4e4 (coremltools issues 1229, 2359)."""
HALF_EPSILON = 2.0**-24
"""The smallest positive float16: a smaller epsilon is zero there, and guards nothing."""

STORED: dict[ir.DataType, str] = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.DOUBLE: "float32",
    ir.DataType.FLOAT16: "float16",
    ir.DataType.INT64: "int32",
    ir.DataType.INT32: "int32",
    ir.DataType.INT16: "int32",
    ir.DataType.UINT16: "int32",
    ir.DataType.UINT32: "int32",
    ir.DataType.UINT64: "int32",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "uint8",
    ir.DataType.BOOL: "bool",
}
"""ONNX element type -> its type in MIL. Core ML indexes and counts in int32; int8 and uint8 exist
for quantized values only."""
NARROW_CONSTANTS: dict[ir.DataType, str] = {ir.DataType.INT4: "int8", ir.DataType.UINT4: "uint8"}
"""The same of constants: Core ML stores four bits, and computes with none."""
FLOATS = ("float32", "float16")


@dataclass(frozen=True, eq=False)
class Packed:
    """Constant that stays stored as integers: real = scale * (data - zero_point).

    Attributes:
        data: int8 or uint8.
        scale: float32 [1], or one for each index of ``axis``; with ``bits``: one for each block, with as many
            axes as ``data`` (iOS 18).
        zero_point: Integers, one for each scale.
        axis: Axis of the scales.
        bits: 4 or 8 for constants stored in blocks. 0 means not in blocks.
    """

    data: Array
    scale: Array
    zero_point: Array
    axis: int
    bits: int = 0

    def transposed(self, perm: Sequence[int]) -> Packed:
        if self.bits:
            data, scale, zero = (
                np.ascontiguousarray(a.transpose(perm)) for a in (self.data, self.scale, self.zero_point)
            )
            return Packed(data, scale, zero, 0, self.bits)
        axis = list(perm).index(self.axis) if self.scale.size > 1 else 0
        return Packed(np.ascontiguousarray(self.data.transpose(perm)), self.scale, self.zero_point, axis)


@dataclass(frozen=True, eq=False)
class Value:
    """Lowered counterpart of an ONNX value.

    Attributes:
        dtype: Element type, a numpy name; float constants are float32 until an operator uses them.
        var: Variable of coremltools' builder; None for a constant, which is placed on first use.
    """

    shape: Shape
    dtype: str
    var: Any = None
    const: Array | None = None
    packed: Packed | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


stored_dtype = partial(stored_type, stored=STORED, engine="Core ML")
"""Return the element type in which an ONNX value is stored."""


def narrowed(array: Array, dtype: str) -> Array:
    """``array`` as ``dtype``; floats are clamped to what float16 holds if that is requested.

    Raises:
        Inexpressible: an integer does not fit.
    """
    target = np.dtype(dtype)
    if array.dtype == target:
        return array
    if target == np.float16:
        return np.clip(array, -HALF_LIMIT, HALF_LIMIT).astype(target)
    if target.kind in "iu" and array.dtype.kind in "iu":
        check_integers(array, dtype, "Core ML")
    return array.astype(target)
