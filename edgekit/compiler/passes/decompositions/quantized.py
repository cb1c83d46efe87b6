"""Decomposes integer ops into float ops with Q/DQ pairs, and Q/DQ into exact float arithmetic."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, input_of, int_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes

FLOAT, INT32 = int(ir.DataType.FLOAT), int(ir.DataType.INT32)
STORED = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
EXACT_TERMS = 2**24 // (255 * 255)
"""Most products of 8-bit integers whose sum is exact in float32."""


def _floats(tape: Tape, node: ir.Node, index: int, axis: int) -> str:
    """Dequantize the input ``index`` with scale ``at + 1`` and zero point ``at + 2``."""
    scale = tape("Cast", f"i{index + 1}", to=FLOAT)
    return tape(
        "DequantizeLinear",
        f"i{index}",
        _plain(tape, node, index + 1, scale),
        _zero(tape, node, index + 2),
        axis=axis,
    )


def _plain(tape: Tape, node: ir.Node, index: int, name: str) -> str:
    dims = dims_of(input_of(node, index))
    return tape.reshape(name, ()) if dims is not None and prod(dims) == 1 else name


def _zero(tape: Tape, node: ir.Node, index: int) -> str:
    return _plain(tape, node, index, f"i{index}")


def _rounded(tape: Tape, node: ir.Node, x: str, index: int) -> str:
    scale = _plain(tape, node, index, tape("Cast", f"i{index}", to=FLOAT))
    return tape("QuantizeLinear", x, scale, _zero(tape, node, index + 1))


@decomposes("QLinearConv")
def q_linear_conv(node: ir.Node) -> onnx.GraphProto | None:
    """QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(bias)))."""
    tape = Tape(node)
    operands = [_floats(tape, node, 0, 1), _floats(tape, node, 3, 0)]
    if input_of(node, 8) is not None:
        bias = tape("Cast", "i8", to=FLOAT)
        scales = [_plain(tape, node, index, tape("Cast", f"i{index}", to=FLOAT)) for index in (1, 4)]
        operands.append(tape("Mul", bias, tape("Mul", *scales)))
    product = tape("Conv", *operands, **{name: a.value for name, a in node.attributes.items()})
    return tape.body(_rounded(tape, node, product, 6))


@decomposes("QLinearMatMul")
def q_linear_mat_mul(node: ir.Node) -> onnx.GraphProto | None:
    """QuantizeLinear(MatMul(DequantizeLinear(a), DequantizeLinear(b)))."""
    scales = [dims_of(input_of(node, index)) for index in (1, 4)]
    if any(dims is None or prod(dims) != 1 for dims in scales):
        return None  # one a row or a column
    tape = Tape(node)
    product = tape("MatMul", _floats(tape, node, 0, 1), _floats(tape, node, 3, 1))
    return tape.body(_rounded(tape, node, product, 6))


@decomposes("MatMulInteger")
def mat_mul_integer(node: ir.Node) -> onnx.GraphProto | None:
    """Cast(MatMul(a - zero, b - zero)) in float32, if its sums are exact."""
    dims, zero = dims_of(node.inputs[0]), dims_of(input_of(node, 2))
    if not dims or dims[-1] > EXACT_TERMS or (zero is not None and prod(zero) != 1):
        return None
    tape = Tape(node)
    product = tape(
        "MatMul", _without_zero_point(tape, node, 0, 2, ()), _without_zero_point(tape, node, 1, 3, None)
    )
    return tape.body(tape("Cast", product, to=INT32))


@decomposes("ConvInteger")
def conv_integer(node: ir.Node) -> onnx.GraphProto | None:
    """Cast(Conv(x - zero, w - zero)) in float32, if its sums are exact."""
    w, zero = dims_of(node.inputs[1]), dims_of(input_of(node, 3))
    if w is None or prod(w[1:]) > EXACT_TERMS:
        return None
    tape = Tape(node)
    per_channel = (w[0], *(1,) * (len(w) - 1)) if zero is not None and prod(zero) > 1 else ()
    operands = (_without_zero_point(tape, node, 0, 2, ()), _without_zero_point(tape, node, 1, 3, per_channel))
    product = tape("Conv", *operands, **{name: a.value for name, a in node.attributes.items()})
    return tape.body(tape("Cast", product, to=INT32))


def _without_zero_point(
    tape: Tape, node: ir.Node, index: int, zero_at: int, shape: tuple[int, ...] | None
) -> str:
    """Subtract the zero point from input ``index``, in float32."""
    x = tape("Cast", f"i{index}", to=FLOAT)
    if input_of(node, zero_at) is None:
        return x
    zero = tape("Cast", f"i{zero_at}", to=FLOAT)
    return tape("Sub", x, zero if shape is None else tape.reshape(zero, shape))


@decomposes("QuantizeLinear")
def quantize_linear(node: ir.Node) -> onnx.GraphProto | None:
    """Clip(Round(x / scale) + zero point), all in float32, then the integer type."""
    kind = node.outputs[0].dtype
    if kind not in STORED or int_of(node, "block_size", 0):
        return None
    tape, limits = Tape(node), np.iinfo(kind.numpy())
    steps = tape("Round", tape("Div", _float(tape, node, 0), _spread(tape, node, 1)))
    if input_of(node, 2) is not None:
        steps = tape("Add", steps, _spread(tape, node, 2))
    clipped = tape("Clip", steps, np.array(limits.min, np.float32), np.array(limits.max, np.float32))
    return tape.body(tape("Cast", clipped, to=int(kind)))


@decomposes("DequantizeLinear")
def dequantize_linear(node: ir.Node) -> onnx.GraphProto | None:
    """(x - zero point) * scale in float32."""
    stored, kind = node.inputs[0], node.outputs[0].dtype
    if stored is None or stored.dtype not in (*STORED, ir.DataType.INT32) or int_of(node, "block_size", 0):
        return None
    tape = Tape(node)
    x = _float(tape, node, 0)
    if input_of(node, 2) is not None:
        x = tape("Sub", x, _spread(tape, node, 2))
    real = tape("Mul", x, _spread(tape, node, 1))
    return tape.body(real if kind == ir.DataType.FLOAT else tape("Cast", real, to=int(kind or FLOAT)))


def _float(tape: Tape, node: ir.Node, index: int) -> str:
    value = input_of(node, index)
    plain = value is not None and value.dtype == ir.DataType.FLOAT
    return f"i{index}" if plain else tape("Cast", f"i{index}", to=FLOAT)


def _spread(tape: Tape, node: ir.Node, index: int) -> str:
    """Convert a scale or zero point to float32 in a shape that broadcasts along its axis."""
    name, dims, data = _float(tape, node, index), dims_of(input_of(node, index)), dims_of(node.inputs[0])
    if dims is None or data is None or prod(dims) == 1:
        return tape.reshape(name, ())
    axis = int_of(node, "axis", 1) % len(data)
    return tape.reshape(name, [dims[0] if a == axis else 1 for a in range(len(data))])
