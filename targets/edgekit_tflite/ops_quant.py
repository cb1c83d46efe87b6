"""QuantizeLinear and DequantizeLinear: scales of integers, and the conversions around float kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.compiler.lowering.quantization_parameters import quantization_parameters
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.ops_math import to_dtype
from edgekit_tflite.stored import LIMITS, shifted


def _quantization(scale: Array, zero_point: Array, axis: int = 0) -> TensorQuantization:
    scales = tuple(float(v) for v in scale.ravel())
    return TensorQuantization(
        scales, tuple(int(z) for z in zero_point.ravel()), axis if len(scales) > 1 else 0
    )


@lower("QuantizeLinear", since=13)
def quantize_linear(
    b: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Emit QUANTIZE per tensor, primitives per axis or block; no operator after an integer kernel."""
    parameters = quantization_parameters(y_scale, y_zero_point)
    scale, zero_point = parameters
    dtype = b.out_dtype()
    if dtype not in LIMITS:
        raise Inexpressible(f"it quantizes to {dtype}; TFLite supports int8, uint8 and int16", code="EK1004")
    if scale.size == 1:
        scheme = _quantization(scale, zero_point)
        if b.node is not None and b.node.outputs[0] in b.plan.shifted:
            dtype, scheme = "int8", shifted(scheme, -128)
        if x.quantization is not None and x.dtype in LIMITS and dtype in ("int8", "uint8"):
            result = b.requantized(b.signed(x), scheme if dtype == "int8" else shifted(scheme, -128))
            return result if dtype == "int8" else b.converted(result, dtype, scheme)
        widens = (x.dtype, dtype) == ("int8", "int16") and not any(scheme.zero_point)
        if b.plain and x.quantization is not None and widens:
            return b.converted(x, dtype, scheme)
        source = to_dtype(b, b.real(x), "float32")
        if not (dtype == "int16" and any(scheme.zero_point)):
            out = b.emit("QUANTIZE", [source], b.new(x.shape, dtype, source.perm, scheme))
            return replace(out, columns=x.columns)
    source = to_dtype(b, b.real(x), "float32")
    factor, offset = parameters.broadcast(x.shape, axis, block_size)
    rounded = b.unary("ROUND", b.binary("DIV", source, b.constant(factor)))
    shifted_up = b.binary("ADD", rounded, b.constant(offset.astype(np.float32)))
    low, high = LIMITS[dtype]
    clipped = b.binary("MINIMUM", b.binary("MAXIMUM", shifted_up, b.scalar(low)), b.scalar(high))
    return to_dtype(b, clipped, dtype)


@lower("DequantizeLinear", since=13)
def dequantize_linear(
    b: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Return the integers with quantization; DEQUANTIZE if floats are read. Per axis in primitives."""
    parameters = quantization_parameters(x_scale, x_zero_point)
    scale, zero_point = parameters
    one_each = scale.size == 1 or not block_size
    if x.const is not None and one_each:
        scheme = _quantization(scale, zero_point, axis % max(x.rank, 1))
        return replace(b.constant(x.const, x.dtype), quantization=scheme)
    if scale.size == 1 and x.dtype in LIMITS:
        scheme = _quantization(scale, zero_point)
        scheme = scheme if x.dtype == b.in_dtype() else shifted(scheme, -128)
        if b.declared(x, scheme) == scheme:
            return replace(x, quantization=scheme)
    if x.columns is not None:
        raise Inexpressible("the integers it reads were stored by another scale, and flattened between")
    if x.const is not None:
        return b.constant(parameters.dequantized(x.const, axis, block_size))
    factor, offset = parameters.broadcast(x.shape, axis, block_size)
    real = to_dtype(b, b.as_integers(x), "float32")
    if np.any(offset):
        real = b.binary("SUB", real, b.constant(offset.astype(np.float32)))
    return b.binary("MUL", real, b.constant(factor))
