"""Decomposes ops of ONNX Runtime alone: float ones, which its optimizer writes, and integer ones, which its
quantizer writes, into Q/DQ pairs and ops of ONNX.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.contributed_shapes import CONTRIBUTED
from edgekit.compiler.model.rewriting import dims_of, float_of, input_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Attribute, Tape, decomposes
from edgekit.tensor_spec import Array

FUSED_CONV = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}
"""Activation -> the names of its ``activation_params``, in their order."""
FUSED_GEMM = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "Softplus": (), "Softsign": (), "Elu": ("alpha",),
    "LeakyRelu": ("alpha",), "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
"""Activation -> the attributes that it has as ``activation_alpha`` and ``activation_beta``."""


@decomposes("FusedConv", domain=CONTRIBUTED)
def fused_conv(node: ir.Node) -> onnx.GraphProto | None:
    """Activation(Conv(x, w, b) + z)."""
    tape, name = Tape(node), text_of(node, "activation", "")
    attributes = {key: a.value for key, a in node.attributes.items() if not key.startswith("activation")}
    y = tape("Conv", "i0", "i1", _given(node, 2), **attributes)
    if input_of(node, 3) is not None:
        y = tape("Add", y, "i3")
    numbers = (
        node.attributes["activation_params"].as_floats() if "activation_params" in node.attributes else []
    )
    if name == "Clip" and len(numbers) == 2:
        return tape.body(tape("Clip", y, *(_scalar(node, number) for number in numbers)))
    if name not in ("", "Relu", "Sigmoid", "Tanh") and len(numbers) != len(FUSED_CONV.get(name, "?" * 9)):
        return None
    arguments = dict(zip(FUSED_CONV.get(name, ()), map(float, numbers), strict=False))
    return tape.body(tape(name, y, **arguments) if name else y)


@decomposes("FusedGemm", domain=CONTRIBUTED)
def fused_gemm(node: ir.Node) -> onnx.GraphProto | None:
    """Activation(Gemm(a, b, c))."""
    tape, name = Tape(node), text_of(node, "activation", "")
    if name not in FUSED_GEMM:
        return None
    attributes = {key: a.value for key, a in node.attributes.items() if not key.startswith("activation")}
    y = tape("Gemm", "i0", "i1", _given(node, 2), **attributes)
    numbers: dict[str, Attribute] = {
        key: float_of(node, f"activation_{key}", 0.0)
        for key in FUSED_GEMM[name]
        if f"activation_{key}" in node.attributes
    }
    return tape.body(tape(name, y, **numbers))


@decomposes("FusedMatMul", "TransposeMatMul", domain=CONTRIBUTED)
def fused_mat_mul(node: ir.Node) -> onnx.GraphProto | None:
    """alpha * MatMul(a, b), each transposed as its attributes say."""
    tape, operands = Tape(node), []
    for index, letter in enumerate("AB"):
        dims, name = dims_of(node.inputs[index]), f"i{index}"
        order = list(range(len(dims or ())))
        if int_of(node, f"transBatch{letter}", 0):
            order = [*order[1:-1], 0, order[-1]]
        if int_of(node, f"trans{letter}", 0) and len(order) > 1:
            order[-2:] = reversed(order[-2:])
        operands.append(tape("Transpose", name, perm=order) if order != sorted(order) else name)
    product = tape("MatMul", *operands)
    alpha = float_of(node, "alpha", 1.0)
    return tape.body(product if alpha == 1.0 else tape("Mul", product, _scalar(node, alpha)))


@decomposes("Gelu", "BiasGelu", "FastGelu", domain=CONTRIBUTED)
def gelu(node: ir.Node) -> onnx.GraphProto:
    """Gelu(x + bias), by Tanh for FastGelu."""
    tape = Tape(node)
    x = tape("Add", "i0", "i1") if input_of(node, 1) is not None else "i0"
    return tape.body(tape("Gelu", x, approximate="tanh" if node.op_type == "FastGelu" else "none"))


@decomposes("QuickGelu", domain=CONTRIBUTED)
def quick_gelu(node: ir.Node) -> onnx.GraphProto:
    """x * Sigmoid(alpha * x)."""
    tape, alpha = Tape(node), float_of(node, "alpha", 1.702)
    gate = tape("Sigmoid", "i0" if alpha == 1.0 else tape("Mul", "i0", _scalar(node, alpha)))
    return tape.body(tape("Mul", "i0", gate))


@decomposes("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=CONTRIBUTED)
def skip_layer_normalization(node: ir.Node) -> onnx.GraphProto | None:
    """Normalization(x + skip + bias); the sum is the fourth output."""
    used = [value.uses() or value.is_graph_output() for value in node.outputs]
    if any(used[1:3]):
        return None  # the mean and the inverse deviation, for training
    tape, simplified = Tape(node), "Simplified" in node.op_type
    total = tape("Add", "i0", "i1")
    if input_of(node, 3 if simplified else 4) is not None:
        total = tape("Add", total, "i3" if simplified else "i4")
    numbers: Mapping[str, Attribute] = {"axis": -1, "epsilon": float_of(node, "epsilon", 1e-12)}
    if simplified:
        y = tape("RMSNormalization", total, "i2", **numbers)
    else:
        y = tape("LayerNormalization", total, "i2", _given(node, 3), **numbers)
    return tape.body(y, None, None, total if any(used[3:]) else None)


def _root_mean_square(node: ir.Node) -> onnx.GraphProto | None:
    """RMSNormalization, by the name that ONNX Runtime gave it before ONNX had it."""
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return None
    tape, axis = Tape(node), int_of(node, "axis", -1)
    return tape.body(tape("RMSNormalization", "i0", "i1", axis=axis, epsilon=float_of(node, "epsilon", 1e-5)))


for _domain in ("", CONTRIBUTED):
    decomposes("SimplifiedLayerNormalization", domain=_domain)(_root_mean_square)


def _given(node: ir.Node, index: int) -> str | None:
    return f"i{index}" if input_of(node, index) is not None else None


def _scalar(node: ir.Node, number: float) -> Array:
    kind = node.outputs[0].dtype or ir.DataType.FLOAT
    array: Array = np.array(number, kind.numpy())
    return array


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
