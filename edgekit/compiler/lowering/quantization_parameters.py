"""Scale and zero point of ONNX's QuantizeLinear and DequantizeLinear: per tensor, per axis, in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.index_arguments import NodeInput
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


class QuantizationParameters(NamedTuple):
    """real = scale * (integer - zero_point).

    Attributes:
        scale: float32, in the node's shape: one, one for each index of an axis, or one for each block.
        zero_point: int64, in the same shape.
    """

    scale: Array
    zero_point: Array

    def broadcast(self, shape: Sequence[int], axis: int, block_size: int) -> QuantizationParameters:
        """Return the parameters shaped to broadcast against ``shape``; ``block_size`` is 0 without blocks."""
        return QuantizationParameters(*(_broadcast(parameter, shape, axis, block_size) for parameter in self))

    def dequantized(self, integers: Array, axis: int, block_size: int) -> Array:
        """Return the numbers that constant integers represent, float32."""
        scale, zero_point = self.broadcast(integers.shape, axis, block_size)
        real = (integers.astype(np.int64) - zero_point).astype(np.float32) * scale
        return np.asarray(real, np.float32)


def quantization_parameters(scale: NodeInput, zero_point: NodeInput | None) -> QuantizationParameters:
    if scale.const is None or (zero_point is not None and zero_point.const is None):
        raise Inexpressible("the model computes its scale or zero point; they must be constant")
    factor = np.asarray(scale.const, np.float32)
    if zero_point is None or zero_point.const is None:
        return QuantizationParameters(factor, np.zeros(factor.shape, np.int64))
    return QuantizationParameters(factor, np.asarray(zero_point.const, np.int64))


def _broadcast(parameters: Array, shape: Sequence[int], axis: int, block_size: int) -> Array:
    rank = len(shape)
    if parameters.size == 1:
        return parameters.reshape((1,) * rank)
    axis %= rank
    if block_size:
        return np.take(np.repeat(parameters, block_size, axis), np.arange(shape[axis]), axis)
    return parameters.reshape(tuple(-1 if a == axis else 1 for a in range(rank)))


def unsupported_type(subject: str, engine: str) -> Inexpressible:
    """Return the error of an element type, e.g. of ``x is complex64``."""
    return Inexpressible(
        f"{subject}, which {engine} does not support", "export the model in float32", "EK1004"
    )


def stored_type(value: ir.Value, stored: Mapping[ir.DataType, str], engine: str) -> str:
    """Return the element type in which an ONNX value is stored.

    Args:
        stored: ONNX element type -> its type in the format, a numpy name.
    """
    if value.dtype is None or value.dtype not in stored:
        dtype = "unknown" if value.dtype is None else value.dtype.name
        raise unsupported_type(f"{value.name} is {dtype}", engine)
    return stored[value.dtype]


def check_integers(array: Array, dtype: str, engine: str) -> None:
    """Check that numbers fit an integer type.

    Raises:
        Inexpressible: one does not.
    """
    limits = np.iinfo(np.dtype(dtype))
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise Inexpressible(
            f"a constant contains {array.min()} to {array.max()}, beyond {engine}'s {dtype}", code="EK1004"
        )
