"""QuantizeLinear and DequantizeLinear, in floats that hold the integers exactly.

Pairs before a convolution on integers are not computed: the layer rounds by itself (``integer.py``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgekit.compiler.lowering.quantization_parameters import quantization_parameters
from edgekit.diagnostics import Inexpressible
from edgekit_ncnn.builder import Builder, Pair, Value, lower
from edgekit_ncnn.ops_math import ADD, DIV, MUL, SUB, binary, elementwise, unary

ROUND = 18
"""Operation of UnaryOp: half to even."""
LIMITS = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}


@lower("QuantizeLinear", since=21)
def quantize_linear(
    b: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Divide, round, add the zero point, clip."""
    assert b.node is not None
    output_type = b.node.outputs[0].dtype
    dtype = output_type.numpy().name if output_type is not None else ""
    if dtype not in LIMITS:
        raise Inexpressible(f"it makes {dtype}; ncnn holds int8 and uint8", code="EK1004")
    parameters = quantization_parameters(y_scale, y_zero_point)
    scale, zero = parameters.broadcast(x.shape, axis, block_size)
    rounded = unary(b, binary(b, x, b.constant(scale), DIV), ROUND)
    if zero.any():
        rounded = binary(b, rounded, b.constant(zero), ADD)
    low, high = LIMITS[dtype]
    quantized = elementwise(b, "Clip", rounded, {0: low, 1: high})
    symmetric = dtype == "int8" and not zero.any() and parameters.scale.size == 1
    return replace(quantized, pair=Pair(parameters.scale, x)) if symmetric else quantized


@lower("DequantizeLinear", since=21)
def dequantize_linear(
    b: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Subtract the zero point, multiply."""
    parameters = quantization_parameters(x_scale, x_zero_point)
    scale, zero = parameters.broadcast(x.shape, axis, block_size)
    if x.const is not None:
        real = b.constant(parameters.dequantized(np.asarray(x.const), axis, block_size))
        plain = x.dtype == "int8" and not zero.any() and not block_size
        return replace(real, pair=Pair(parameters.scale, x)) if plain else real
    shifted = binary(b, x, b.constant(zero), SUB) if zero.any() else x
    real = binary(b, shifted, b.constant(scale), MUL)
    if x.pair is not None and np.array_equal(x.pair.scale, parameters.scale) and not zero.any():
        return replace(real, pair=x.pair)
    return real
