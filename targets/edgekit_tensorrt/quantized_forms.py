"""Rewrites of Q/DQ pairs into the only form that TensorRT accepts, if that is equal to the bit.

    DequantizeLinear(int32 bias)               =>  the float bias
    uint8 with zero point 128                  =>  int8 with zero point 0: each integer less 128

Its parser rejects the first ("input has type Int32"), which every file of onnxruntime's quantize_static with
default options has. It also rejects every zero point but 0.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import add_constant, array_of, input_of, int_of, nodes_of

MIDDLE = 128


def symmetric_pairs(model: ir.Model) -> None:
    """Rewrite the pairs of the main graph, in place; those that differ in TensorRT's form stay."""
    for _, node in nodes_of(model, "DequantizeLinear"):
        _float_bias(model, node)
    for _, node in nodes_of(model, "QuantizeLinear", "DequantizeLinear"):
        zero = array_of(input_of(node, 2))
        if zero is None or zero.dtype != np.uint8 or not (zero == MIDDLE).all():
            continue
        stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
        if stored is not None and _only_pairs(stored):
            _shift(model, stored)


def _float_bias(model: ir.Model, node: ir.Node) -> None:
    stored, scale = array_of(node.inputs[0]), array_of(node.inputs[1])
    zero = array_of(input_of(node, 2))
    if stored is None or scale is None or stored.dtype != np.int32 or (zero is not None and zero.any()):
        return
    if scale.ndim and int_of(node, "axis", 1) % stored.ndim:
        return
    output = node.outputs[0]
    spread = scale.reshape(-1, *[1] * (stored.ndim - 1)) if scale.size > 1 else scale
    number = (stored.astype(np.float32) * spread).astype(scale.dtype)
    constant = add_constant(model, number, f"{output.name}/float")
    output.replace_all_uses_with(constant, replace_graph_outputs=False)
    if not output.is_graph_output():
        model.graph.remove(node, safe=True)


def _only_pairs(stored: ir.Value) -> bool:
    """Check that only Q and DQ nodes use the integers, which are not a graph input or output."""
    if stored.is_graph_output() or stored.is_graph_input():
        return False
    producer = stored.producer()
    around = [use.node for use in stored.uses()] + ([producer] if producer is not None else [])
    return all(
        node.op_type in ("QuantizeLinear", "DequantizeLinear") and array_of(input_of(node, 2)) is not None
        for node in around
    ) and (producer is not None or array_of(stored) is not None)


def _shift(model: ir.Model, stored: ir.Value) -> None:
    """Shift uint8 around 128 to int8 around 0, in every pair that uses these integers."""
    producer = stored.producer()
    nodes = [use.node for use in stored.uses()] + ([producer] if producer is not None else [])
    zeros = [array_of(input_of(node, 2)) for node in nodes]
    if not all(zero is not None and zero.dtype == np.uint8 and (zero == MIDDLE).all() for zero in zeros):
        return
    for node, zero in zip(nodes, zeros, strict=True):
        assert zero is not None
        node.replace_input_with(2, add_constant(model, np.zeros(zero.shape, np.int8), f"{node.name}/zero"))
    array = array_of(stored)
    if array is None:
        stored.type = ir.TensorType(ir.DataType.INT8)
        return
    shifted = add_constant(model, (array.astype(np.int16) - MIDDLE).astype(np.int8), f"{stored.name}/int8")
    stored.replace_all_uses_with(shifted)
