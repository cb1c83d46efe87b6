"""Decomposes integer ops of ONNX Runtime alone, which its quantizer writes, into Q/DQ pairs and ops of ONNX.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.contributed_shapes import CONTRIBUTED
from edgekit.compiler.model.rewriting import dims_of, float_of, input_of, int_of, ints_of
from edgekit.compiler.passes.decompositions.tape import Attribute, Tape, decomposes

FLOAT = int(ir.DataType.FLOAT)


def _float(tape: Tape, node: ir.Node, index: int, scale: int, axis: int = 1) -> str:
    """Dequantize an input by the scale at input ``scale`` and the zero point after it."""
    numbers = [_plain(tape, node, scale), _plain(tape, node, scale + 1)]
    return tape("DequantizeLinear", f"i{index}", *numbers, axis=axis)


def _plain(tape: Tape, node: ir.Node, index: int) -> str | None:
    """Return an input with one element as a scalar, another one as it is; None if it is omitted."""
    value = input_of(node, index)
    if value is None:
        return None
    dims = dims_of(value)
    return tape.reshape(f"i{index}", ()) if dims and prod(dims) == 1 else f"i{index}"


def _integers(tape: Tape, node: ir.Node, x: str, scale: int) -> onnx.GraphProto:
    """Return the body that ends with QuantizeLinear of ``x``, by the scale at input ``scale``."""
    numbers = [_plain(tape, node, scale), _plain(tape, node, scale + 1)]
    kind = node.outputs[0].dtype or ir.DataType.UINT8
    return tape.body(tape("QuantizeLinear", x, *numbers, output_dtype=int(kind)))


@decomposes("QLinearAdd", "QLinearMul", domain=CONTRIBUTED)
def binary(node: ir.Node) -> onnx.GraphProto:
    tape = Tape(node)
    operands = _float(tape, node, 0, 1), _float(tape, node, 3, 4)
    return _integers(tape, node, tape(node.op_type.removeprefix("QLinear"), *operands), 6)


@decomposes("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", domain=CONTRIBUTED)
@decomposes("QLinearGlobalAveragePool", "QLinearReduceMean", "QLinearSoftmax", domain=CONTRIBUTED)
def unary(node: ir.Node) -> onnx.GraphProto | None:
    tape, op = Tape(node), node.op_type.removeprefix("QLinear")
    attributes: dict[str, Attribute] = {key: a.value for key, a in node.attributes.items()}
    if attributes.pop("channels_last", 0):
        return None
    operands: list[str] = [_float(tape, node, 0, 1)]
    dims = dims_of(node.inputs[0]) or ()
    if op == "Softmax":
        axis = int_of(node, "axis", -1) % max(len(dims), 1)
        attributes.pop("opset", None)
        if int_of(node, "opset", 13) < 13 and prod(dims[axis + 1 :]) != 1:
            return None  # over several axes together
    if op == "ReduceMean" and "axes" in attributes:
        attributes.pop("axes")
        operands.append(tape.constant(np.array(ints_of(node, "axes"), np.int64)))
    return _integers(tape, node, tape(op, *operands, **attributes), 3)


@decomposes("QLinearConcat", domain=CONTRIBUTED)
def concat(node: ir.Node) -> onnx.GraphProto:
    tape = Tape(node)
    parts = [_float(tape, node, index, index + 1) for index in range(2, len(node.inputs), 3)]
    return _integers(tape, node, tape("Concat", *parts, axis=int_of(node, "axis", 0)), 0)


@decomposes("QLinearWhere", domain=CONTRIBUTED)
def where(node: ir.Node) -> onnx.GraphProto:
    tape = Tape(node)
    chosen = tape("Where", "i0", _float(tape, node, 1, 2), _float(tape, node, 4, 5))
    return _integers(tape, node, chosen, 7)


@decomposes("QGemm", domain=CONTRIBUTED)
def gemm(node: ir.Node) -> onnx.GraphProto:
    """Gemm of dequantized operands; the bias has the scale alpha * a_scale * b_scale."""
    tape, alpha = Tape(node), float_of(node, "alpha", 1.0)
    transposed = {key: int_of(node, key, 0) for key in ("transA", "transB")}
    operands = [_float(tape, node, 0, 1), _float(tape, node, 3, 4, 0 if transposed["transB"] else 1)]
    if input_of(node, 6) is not None:
        scale = tape("Mul", *(_plain(tape, node, index) for index in (1, 4)))
        if alpha != 1.0:
            scale = tape("Mul", scale, np.array(alpha, np.float32))
        operands.append(tape("Mul", tape("Cast", "i6", to=FLOAT), scale))
    y = tape("Gemm", *operands, alpha=alpha, **transposed)
    return tape.body(y) if input_of(node, 7) is None else _integers(tape, node, y, 7)


@decomposes("MatMulIntegerToFloat", domain=CONTRIBUTED)
def mat_mul_to_float(node: ir.Node) -> onnx.GraphProto | None:
    """MatMul of dequantized operands, and the bias."""
    dims, scale = dims_of(node.inputs[1]), dims_of(node.inputs[2])
    if dims is None or scale is None or prod(scale) != 1:
        return None  # a scale for each row of the input
    tape, operands = Tape(node), []
    for index in (0, 1):
        numbers = [_plain(tape, node, 2 + index), _plain(tape, node, 4 + index)]
        axis = 1 if index == 0 else len(dims) - 1
        operands.append(tape("DequantizeLinear", f"i{index}", *numbers, axis=axis))
    product = tape("MatMul", *operands)
    return tape.body(product if input_of(node, 6) is None else tape("Add", product, "i6"))


@decomposes("QuantizeLinear", "DequantizeLinear", domain=CONTRIBUTED)
def pair(node: ir.Node) -> onnx.GraphProto | None:
    """ONNX's op of the same name, which had fewer types."""
    if int_of(node, "block_size", 0):
        return None
    tape = Tape(node)
    numbers = [_plain(tape, node, index) for index in (1, 2)]
    kind = {"output_dtype": int(node.outputs[0].dtype or 0)} if node.op_type == "QuantizeLinear" else {}
    return tape.body(tape(node.op_type, "i0", *numbers, axis=int_of(node, "axis", 1), **kind))
