"""QuantizeLinear and DequantizeLinear, with gradients."""

from __future__ import annotations

import numpy as np
import torch

from edgekit.compiler.compress.torch.graph_program import GraphProgram, Tensor, Value, Values, is_float, lower
from edgekit.compiler.quantize.numerics import stored_range
from edgekit.diagnostics import Inexpressible

_STORED = ("int8", "uint8", "int16", "uint16")


@lower("QuantizeLinear", since=10)
def quantize_linear(
    b: GraphProgram,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int,
    block_size: int,
) -> Values:
    """Emit the stored integers as float32, bit for bit. Rounding has the gradient of the identity (the
    straight-through estimator, arXiv 1308.3432); values that are clipped have none. With the DequantizeLinear
    after it, the scale's gradient is that of LSQ (arXiv 1902.08153)."""
    dtype = b.out().dtype
    if dtype not in _STORED or block_size:
        raise Inexpressible(
            f"{dtype} in blocks of {block_size}; training supports 8 and 16 bits without blocks"
        )
    low, high = (float(end) for end in stored_range(dtype))  # type: ignore[arg-type]  # uint16 is one too
    rank = x.rank

    def run(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        middle = 0.0 if zero is None else _along(zero.to(x.dtype), rank, axis)
        steps = x / _along(scale, rank, axis)
        rounded = steps.round().detach() + (steps - steps.detach())
        return torch.clamp(rounded, low - middle, high - middle) + middle

    return b.emit(run, x, y_scale, y_zero_point)


@lower("DequantizeLinear", since=10)
def dequantize_linear(
    b: GraphProgram,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    *,
    axis: int,
    block_size: int,
) -> Values:
    """(stored - zero point) * scale."""
    if block_size or not is_float(b.out()):
        raise Inexpressible("block-wise scales are not supported in training")
    rank = x.rank

    def run(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        stored = x.to(scale.dtype)
        middle = 0.0 if zero is None else _along(zero.to(scale.dtype), rank, axis)
        return (stored - middle) * _along(scale, rank, axis)

    return b.emit(run, x, x_scale, x_zero_point)


def _along(numbers: Tensor, rank: int, axis: int) -> Tensor:
    """Reshape the numbers of each channel so that they broadcast; one number becomes a scalar."""
    if numbers.ndim == 0 or numbers.numel() == 1:
        return numbers.reshape(())
    shape = np.ones(rank, int).tolist()
    shape[axis] = -1
    return numbers.reshape(shape)
