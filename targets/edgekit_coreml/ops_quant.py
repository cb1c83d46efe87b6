"""QuantizeLinear and DequantizeLinear: activations as quantize and dequantize, weights stored as integers."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.quantization_parameters import quantization_parameters
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.values import Packed

STORABLE = ("int8", "uint8")
BLOCKS_IOS = 18
"""The first with blocks of weights, and with weights of four bits."""


def _operands(b: Builder, x: Value, scale: Array, zero: Array, dtype: str, axis: int) -> dict[str, object]:
    per_axis = scale.size > 1
    factor = np.asarray(scale.ravel() if per_axis else scale.ravel()[0], np.dtype(b.compute))
    operands: dict[str, object] = {"scale": factor if per_axis else factor[()]}
    if np.any(zero):
        stored = zero.astype(np.dtype(dtype))
        operands["zero_point"] = stored.ravel() if per_axis else stored.ravel()[0]
    elif dtype == "uint8":  # without one it is taken for int8's
        operands["zero_point"] = np.zeros(scale.size, np.uint8) if per_axis else np.uint8(0)
    if per_axis:
        operands["axis"] = axis % x.rank
    return operands


def _representable(b: Builder, scale: Array) -> None:
    """Reject a scale below 2^-17, which float16 holds with fewer than 8 bits or not at all."""
    if b.compute == "float16" and scale.size and float(np.min(np.abs(scale))) < 2.0**-17:
        raise Inexpressible(
            f"a scale of {float(np.min(np.abs(scale))):.3g} cannot be stored in float16", "build it in fp32"
        )


def _unpacked(data: Array) -> tuple[Array, int]:
    """Return 4-bit integers widened to 8 bits, and their original number of bits."""
    if data.dtype.name in ("int4", "uint4"):
        return data.astype(np.int8 if data.dtype.name == "int4" else np.uint8), 4
    return data, 8


@lower("QuantizeLinear", since=13)
def quantize_linear(
    b: Builder, x: Value, y_scale: Value, y_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Emit quantize to int8 or uint8, per tensor or axis."""
    scale, zero = quantization_parameters(y_scale, y_zero_point)
    dtype = b.out_dtype()
    if dtype not in STORABLE:
        raise Inexpressible(f"it quantizes to {dtype}; Core ML supports int8 and uint8", code="EK1004")
    if block_size:
        raise Inexpressible("block-wise activations are not supported by Core ML")
    if b.ios < 17:
        raise Inexpressible("quantize needs iOS 17", "build for a profile of iOS 17 or later")
    _representable(b, scale)
    source = b.cast(x, b.compute) if x.is_float and x.const is None else x
    if not x.is_float:
        source = b.cast(x, "float32")
    return b.emit("quantize", input=source, output_dtype=dtype, **_operands(b, x, scale, zero, dtype, axis))


@lower("DequantizeLinear", since=13)
def dequantize_linear(
    b: Builder, x: Value, x_scale: Value, x_zero_point: Value | None = None, *, axis: int, block_size: int
) -> Value:
    """Emit dequantize. Constants stay stored as integers, or become floats (biases, scalars)."""
    parameters = quantization_parameters(x_scale, x_zero_point)
    scale, zero = parameters
    if x.const is not None:
        data, bits = _unpacked(np.asarray(x.const))
        per_axis = scale.size in (1, x.shape[axis % x.rank] if x.rank else 1) and not block_size
        stored = data.dtype.name in STORABLE and x.rank >= 2
        blocks = bool(block_size) and x.rank > 0 and x.shape[axis % x.rank] % block_size == 0
        if stored and b.ios >= BLOCKS_IOS and (blocks or (per_axis and bits == 4)):
            shape = tuple(scale.size if a == axis % x.rank else 1 for a in range(x.rank))
            scales, zeros = (p if blocks else p.reshape(shape) for p in (scale, zero))
            return Value(x.shape, "float32", packed=Packed(data, scales, zeros, 0, bits))
        if stored and per_axis:
            along = axis % x.rank if scale.size > 1 else 0
            return Value(x.shape, "float32", packed=Packed(data, scale.ravel(), zero.ravel(), along))
        return b.constant(parameters.dequantized(data, axis, block_size))
    if x.dtype not in STORABLE:
        raise Inexpressible(f"it dequantizes {x.dtype}; Core ML supports int8 and uint8", code="EK1004")
    if block_size:
        raise Inexpressible("block-wise activations are not supported by Core ML")
    _representable(b, scale)
    return b.emit("dequantize", input=x, **_operands(b, x, scale, zero, x.dtype, axis))
