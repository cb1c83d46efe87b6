"""QuantizeLinear and DequantizeLinear: what integers stand for, and the conversions around float kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.findings import Inexpressible
from edgekit.tensors import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import Quantization
from edgekit_tflite.ops_math import to_dtype
from edgekit_tflite.stored import LIMITS, shifted


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


def _held(scale: Array, zero_point: Array, axis: int = 0) -> Quantization:
    scales = tuple(float(v) for v in scale.ravel())
    return Quantization(scales, tuple(int(z) for z in zero_point.ravel()), axis if len(scales) > 1 else 0)


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
    """Nothing behind an integer kernel; QUANTIZE per tensor; per axis or block in primitives."""
    scale, zero_point = _parameters(y_scale, y_zero_point)
    dtype = b.out_dtype()
    if dtype not in LIMITS:
        raise Inexpressible(f"it quantizes to {dtype}; int8, uint8 and int16 have a form", code="EK1004")
    if scale.size == 1:
        held = _held(scale, zero_point)
        if b.node is not None and b.node.outputs[0] in b.plan.shifted:
            dtype, held = "int8", shifted(held, -128)
        if x.quantization is not None and x.dtype == "int8" and dtype in ("int8", "uint8"):
            made = b.requantized(x, held if dtype == "int8" else shifted(held, -128))
            return made if dtype == "int8" else b.converted(made, dtype, held)
        source = to_dtype(b, b.real(x), "float32")
        if not (dtype == "int16" and any(held.zero_point)):
            out = b.emit("QUANTIZE", [source], b.new(x.shape, dtype, source.perm, held))
            return replace(out, columns=x.columns)
    source = to_dtype(b, b.real(x), "float32")
    factor = _spread(scale, x.shape, axis, block_size)
    offset = _spread(zero_point, x.shape, axis, block_size).astype(np.float32)
    rounded = b.unary("ROUND", b.binary("DIV", source, b.constant(factor)))
    shifted_up = b.binary("ADD", rounded, b.constant(offset))
    low, high = LIMITS[dtype]
    clipped = b.binary("MINIMUM", b.binary("MAXIMUM", shifted_up, b.scalar(low)), b.scalar(high))
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
    """The integers, and what they stand for; DEQUANTIZE where floats are read. In primitives per axis."""
    scale, zero_point = _parameters(x_scale, x_zero_point)
    one_each = scale.size == 1 or not block_size
    if x.const is not None and one_each:
        held = _held(scale, zero_point, axis % max(x.rank, 1))
        return replace(b.constant(x.const, x.dtype), quantization=held)
    if scale.size == 1 and x.dtype in LIMITS:
        held = _held(scale, zero_point)
        held = held if x.dtype == b.in_dtype() else shifted(held, -128)
        if b.declared(x, held) == held:
            return replace(x, quantization=held)
    if x.columns is not None:
        raise Inexpressible("the integers it reads were stored by another scale, and flattened between")
    factor = _spread(scale, x.shape, axis, block_size)
    offset = _spread(zero_point, x.shape, axis, block_size)
    if x.const is not None:
        return b.constant(
            ((x.const.astype(np.int64) - offset).astype(np.float32) * factor).astype(np.float32)
        )
    real = to_dtype(b, b.as_integers(x), "float32")
    if np.any(offset):
        real = b.binary("SUB", real, b.constant(offset.astype(np.float32)))
    return b.binary("MUL", real, b.constant(factor))
