"""Pairs of QuantizeLinear and DequantizeLinear as FakeQuantize, which computes the same values.

Bytes that an image input gives (``with_fake_quantize``):

    x, uint8 -> Cast -> [Sub(m)] -> Q(1, m) -> DQ(1, m) -> Conv
        =>   x -> Cast -> [Sub(m)] -> FakeQuantize(-m to 255 - m, 256 levels) -> Conv

From the pair, OpenVINO's CPU plugin makes a Convert to float and multiplies floats; from the FakeQuantize an
integer convolution that reads the bytes, layout included (2026.4, by its execution graph: YOLOX-nano's first
convolution takes 1.5 ms instead of 8).

Pairs after a Concat (``with_fake_quantized_concats``):

    Concat -> [Relu ...] -> Q -> DQ -> [Relu ...] -> Q -> DQ
        =>   Concat -> [Relu ...] -> FakeQuantize -> [Relu ...] -> Q -> DQ

if the first zero point is not 0. compile_model of 2026.4.1 ends the process by SIGSEGV on such a pair (its
low precision transformations do: with them off it does not). CenterNet's int8 has the pair: its Concat of two
branches is quantized, and once more after the Relu.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.byte_pairs import held_bytes
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    int_of,
    nodes_of,
    producer_of,
    replace_node,
)
from edgekit.tensor_spec import Array

DOMAIN = "org.openvinotoolkit"
"""Domain of the operators that OpenVINO's ONNX reader adds to the standard's."""
BETWEEN = ("Add", "Div", "Mul", "Relu", "Sub")
"""Operators, with constants, that may stand between the pairs. With LeakyRelu, Sigmoid, Elu, HardSwish, Clip,
Max, MaxPool, Transpose, Reshape and Split 2026.4.1 does not crash."""
BEFORE = ("Clip", *BETWEEN)
"""The same between Concat and pair; not with LeakyRelu, Sigmoid, Neg, MaxPool, Transpose, Reshape, Slice."""
LEVELS = 256


def with_fake_quantized_concats(model: ir.Model) -> ir.Model:
    """Return ``model`` itself, or a copy in which such pairs are FakeQuantize operators."""
    if not any(_is_fatal(node) for _, node in nodes_of(model, "QuantizeLinear")):
        return model
    copy = model.clone()
    copy.opset_imports[DOMAIN] = 1
    for _, node in nodes_of(copy, "QuantizeLinear"):
        if not _is_fatal(node):
            continue
        for pair in _pairs(node):
            ends = [*_ends(node, node.inputs[0]), *_ends(pair, node.inputs[0])]
            names = ("least", "greatest", "least_read", "greatest_read")
            constants = [
                add_constant(copy, end, f"{pair.name}/{name}") for name, end in zip(names, ends, strict=True)
            ]
            inputs = [node.inputs[0], *constants]
            replace_node(
                pair, ir.node("FakeQuantize", inputs, {"levels": LEVELS}, domain=DOMAIN, name=pair.name)
            )
    return copy


def _is_fatal(node: ir.Node) -> bool:
    zero_point, pairs = array_of(input_of(node, 2)), _pairs(node)
    if zero_point is None or zero_point.dtype not in (np.uint8, np.int8) or not zero_point.any() or not pairs:
        return False
    if not all(_ends(quantize, node.inputs[0]) for quantize in (node, *pairs)):
        return False
    value = node.inputs[0]
    while (before := producer_of(value, *BEFORE)) is not None:
        value = _only_varying(before)
    return producer_of(value, "Concat") is not None and any(_is_quantized(pair.outputs[0]) for pair in pairs)


def _pairs(node: ir.Node) -> list[ir.Node]:
    """Return the DequantizeLinear nodes that read a QuantizeLinear; none if another operator reads it."""
    value = node.outputs[0]
    readers = [use.node for use in value.uses()]
    others = value.is_graph_output() or any(reader.op_type != "DequantizeLinear" for reader in readers)
    return [] if others else readers


def _is_quantized(value: ir.Value) -> bool:
    """Check whether a value is quantized, directly or after operators of ``BETWEEN``."""
    for use in value.uses():
        if use.node.op_type == "QuantizeLinear" and use.idx == 0:
            return True
        is_passed_on = use.node.op_type in BETWEEN and _only_varying(use.node) is value
        if is_passed_on and _is_quantized(use.node.outputs[0]):
            return True
    return False


def _only_varying(node: ir.Node) -> ir.Value | None:
    varying = [value for value in node.inputs if value is not None and array_of(value) is None]
    return varying[0] if len(varying) == 1 else None


def _ends(node: ir.Node, real: ir.Value | None) -> list[Array]:
    """Return the least and greatest number that a QuantizeLinear or DequantizeLinear can represent, in the
    shape that a FakeQuantize takes; none if they are not known.
    """
    scale, zero_point, dims = array_of(input_of(node, 1)), array_of(input_of(node, 2)), dims_of(real)
    if scale is None or zero_point is None or zero_point.dtype not in (np.uint8, np.int8):
        return []
    shape = [1] * scale.ndim
    if scale.size > 1:
        if scale.ndim != 1 or dims is None:
            return []
        shape = [1] * len(dims)
        shape[int_of(node, "axis", 1)] = scale.size
    codes = np.iinfo(zero_point.dtype)
    return [
        ((np.float32(code) - zero_point.astype(np.float32)) * scale).astype(np.float32).reshape(shape)
        for code in (codes.min, codes.max)
    ]


def with_fake_quantize(model: ir.Model) -> ir.Model:
    """``model`` itself, or a copy in which such pairs are FakeQuantize operators."""
    if all(held_bytes(node) is None for _, node in nodes_of(model, "QuantizeLinear")):
        return model
    copy = model.clone()
    copy.opset_imports[DOMAIN] = 1
    for _, node in nodes_of(copy, "QuantizeLinear"):
        stored = held_bytes(node)
        pairs = [use.node for use in node.outputs[0].uses()]
        if stored is None or any(pair.op_type != "DequantizeLinear" for pair in pairs):
            continue
        low, high = (
            add_constant(copy, np.array(end - stored[1], np.float32), f"{node.name}/{name}")
            for name, end in (("least", 0), ("greatest", 255))
        )
        for pair in pairs:
            inputs = [node.inputs[0], low, high, low, high]
            fake = ir.node("FakeQuantize", inputs, {"levels": 256}, domain=DOMAIN, name=pair.name)
            replace_node(pair, fake)
    return copy
