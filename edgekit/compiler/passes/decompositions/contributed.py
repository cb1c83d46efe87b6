"""Decomposes float ops of ONNX Runtime alone, which its optimizer writes, into ONNX's.

Definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.contributed_shapes import CONTRIBUTED
from edgekit.compiler.model.rewriting import dims_of, float_of, input_of, int_of, text_of
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
