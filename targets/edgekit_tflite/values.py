"""The lowered counterpart of an ONNX value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.quantization_parameters import check_integers, stored_type
from edgekit.tensor_spec import Array
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.layout import Perm, Shape

STORED: dict[ir.DataType, str] = {
    ir.DataType.FLOAT: "float32",
    ir.DataType.DOUBLE: "float32",
    ir.DataType.FLOAT16: "float32",
    ir.DataType.INT64: "int32",
    ir.DataType.INT32: "int32",
    ir.DataType.INT16: "int16",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "uint8",
    ir.DataType.UINT16: "int32",
    ir.DataType.UINT32: "int32",
    ir.DataType.UINT64: "int32",
    ir.DataType.BOOL: "bool",
}
"""ONNX element type -> its type in the .tflite file. TFLite's kernels index and count in int32, and
the runner refuses numbers that it does not hold. float16 is computed in float32, and rounded at the end."""

NARROW = ("int8", "uint8", "int16")
"""Integers that most kernels take only as quantized reals; plain arithmetic on them is done in int32."""

WIDENED: dict[ir.DataType, str] = {ir.DataType.INT4: "int8", ir.DataType.UINT4: "uint8"}
"""Constants of a pair that are held wider, by the same scale."""


@dataclass(frozen=True)
class View:
    """A value that is ``source[begin : : step]`` along each logical axis (the end follows from its shape)."""

    source: Value
    begin: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """The lowered counterpart of an ONNX value.

    Attributes:
        shape: Logical shape, as ONNX has it.
        dtype: Stored element type, a numpy name.
        perm: stored = logical.transpose(perm).
        const: The logical array of a constant.
        columns: The last axis is stored in this order of its indices. Only what multiplies it with constant
            weights may read such a value (``b.flatten``).
    """

    shape: Shape
    dtype: str
    perm: Perm
    tensor: int = -1
    const: Array | None = None
    quantization: TensorQuantization | None = None
    view: View | None = None
    columns: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


Operand = Value | int | None
"""A value in the layout it has, the index of a tensor, or an optional input left out."""


stored_dtype = partial(stored_type, stored=STORED, engine="TFLite")
"""Return the element type in which an ONNX value is stored."""


def narrowed(array: Array, dtype: str) -> Array:
    """``array`` as ``dtype``.

    Raises:
        Inexpressible: an integer does not fit.
    """
    if array.dtype.name == dtype:
        return array
    target = np.dtype(dtype)
    if target.kind in "iu":
        check_integers(array, dtype, "TFLite")
    return array.astype(target)
