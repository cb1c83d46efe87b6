"""Scale and zero point of ONNX's QuantizeLinear and DequantizeLinear: per tensor, per axis, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

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
    """Decode the parameters of a node; an omitted zero point is 0.

    Raises:
        Inexpressible: the model computes them.
    """
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
