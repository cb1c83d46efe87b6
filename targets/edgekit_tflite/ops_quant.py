"""QuantizeLinear and DequantizeLinear around float kernels."""

from __future__ import annotations

import numpy as np

from edgekit.lowering import Inexpressible
from edgekit.target import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import Quantization
from edgekit_tflite.ops_math import to_dtype

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def _parameters(scale: Value, zero_point: Value | None) -> tuple[Array, Array]:
    """Scale and zero point as float32 and int64 arrays of one shape.

    Raises:
        Inexpressible: the model computes them.
    """
    if scale.const is None or (zero_point is not None and zero_point.const is None):
        raise Inexpressible("its scale or zero point is computed by the model; they must be constant")
    factor = np.asarray(scale.const, np.float32)
    if zero_point is None or zero_point.const is None:
        return factor, np.zeros(factor.shape, np.int64)
    return factor, np.asarray(zero_point.const, np.int64)


def _spread(parameters: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """Per-tensor, per-axis or blocked parameters, so that they broadcast against ``shape``."""
    if parameters.size == 1:
        return parameters.reshape((1,) * len(shape))
    axis %= len(shape)
    if block_size:
        repeated = np.repeat(parameters, block_size, axis)
        return np.take(repeated, np.arange(shape[axis]), axis)
    return parameters.reshape(tuple(-1 if a == axis else 1 for a in range(len(shape))))


def _per_tensor(scale: Array, zero_point: Array) -> Quantization | None:
    if scale.size != 1:
        return None
    return Quantization((float(scale.ravel()[0]),), (int(zero_point.ravel()[0]),))


@lower("QuantizeLinear", since=13)
def quantize_linear(
    b: Builder,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """QUANTIZE per tensor; per axis or block in primitives."""
    scale, zero_point = _parameters(y_scale, y_zero_point)
    dtype = b.out_dtype()
    if dtype not in LIMITS:
        raise Inexpressible(f"it quantizes to {dtype}; int8, uint8 and int16 have a form", code="EK1004")
    quantization = _per_tensor(scale, zero_point)
    source = to_dtype(b, x, "float32")
    if quantization is not None and not (dtype == "int16" and quantization.zero_point != (0,)):
        return b.emit("QUANTIZE", [source], b.new(x.shape, dtype, source.perm, quantization))
    factor = _spread(scale, x.shape, axis, block_size)
    offset = _spread(zero_point, x.shape, axis, block_size).astype(np.float32)
    rounded = b.unary("ROUND", b.binary("DIV", source, b.constant(factor)))
    shifted = b.binary("ADD", rounded, b.constant(offset))
    low, high = LIMITS[dtype]
    clipped = b.binary("MINIMUM", b.binary("MAXIMUM", shifted, b.scalar(low)), b.scalar(high))
    return to_dtype(b, clipped, dtype)


@lower("DequantizeLinear", since=13)
def dequantize_linear(
    b: Builder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """A float constant for constant integers; DEQUANTIZE per tensor; per axis or block in primitives."""
    scale, zero_point = _parameters(x_scale, x_zero_point)
    factor = _spread(scale, x.shape, axis, block_size)
    offset = _spread(zero_point, x.shape, axis, block_size)
    if x.const is not None:
        return b.constant(
            ((x.const.astype(np.int64) - offset).astype(np.float32) * factor).astype(np.float32)
        )
    quantization = _per_tensor(scale, zero_point)
    if quantization is not None and x.dtype in LIMITS and b.quantized_by(x, quantization):
        return b.emit("DEQUANTIZE", [x], b.new(x.shape, "float32", x.perm))
    real = to_dtype(b, b.as_integers(x), "float32")
    if np.any(offset):
        real = b.binary("SUB", real, b.constant(offset.astype(np.float32)))
    return b.binary("MUL", real, b.constant(factor))
