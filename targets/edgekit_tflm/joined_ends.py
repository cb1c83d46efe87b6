"""Outputs joined from several scales, as 16-bit integers: an NPU supports these, but not floats.

    a, int8 by s -> DQ -.                      a -> DQ -> Q(int16 by S) -.
                        Concat -> Reshape -> y                           Concat -> Reshape -> DQ -> y
    b, int8 by t -> DQ -'                =>    b -> DQ -> Q(int16 by S) -'

Boxes and scores of a detector have no common 8-bit scale, but a 16-bit one: S = the largest of their
ranges / 32767, zero point 0. Values are rounded again to 1/256 of the coarsest scale. DQ and Q before
the Concat are one QUANTIZE; one DEQUANTIZE is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    free_name,
    input_of,
    insert_before,
    new_node,
)

MOVES = ("Concat", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
LARGEST = 32767


def with_joined_ends(model: ir.Model) -> ir.Model:
    """Return a copy of the model with these forms, or the model itself if it has no such output."""
    if not any(_joined(value) for value in model.graph.outputs):
        return model
    copy = model.clone()
    for index, output in enumerate(list(copy.graph.outputs)):
        if nodes := _joined(output):
            _join(copy, index, nodes)
    return copy


def _joined(output: ir.Value) -> list[ir.Node]:
    """Return the nodes that move int8 numbers of several scales into this output, last first; or none."""
    nodes: dict[ir.Node, None] = {}
    pending = [output]
    scales = set()
    while pending:
        value = pending.pop()
        node = value.producer()
        if node is None or value.dtype != ir.DataType.FLOAT:
            return []
        if node.op_type == "DequantizeLinear":
            scale = _scale(node)
            if scale is None:
                return []
            scales.add(scale)
            continue
        if node.domain or node.op_type not in MOVES or len({*value.uses()}) != (value is not output):
            return []
        nodes[node] = None
        pending += list(_moved_inputs(node))
    return list(nodes) if len(scales) > 1 else []


def _moved_inputs(node: ir.Node) -> Iterator[ir.Value]:
    for value in node.inputs if node.op_type == "Concat" else node.inputs[:1]:
        if value is not None:
            yield value


def _scale(node: ir.Node) -> tuple[float, int] | None:
    """Return scale and zero point of stored 8-bit integers that a node computed; None for others."""
    stored, scale, zero = node.inputs[0], array_of(input_of(node, 1)), array_of(input_of(node, 2))
    if stored is None or stored.const_value is not None or stored.dtype != ir.DataType.INT8:
        return None
    if scale is None or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    return float(scale.reshape(())), 0 if zero is None else int(zero.reshape(()))


def _join(model: ir.Model, index: int, nodes: list[ir.Node]) -> None:
    output = model.graph.outputs[index]
    name = str(output.name)
    leaves = [
        (node, position, value)
        for node in nodes
        for position, value in enumerate(node.inputs)
        if value is not None and (maker := value.producer()) is not None
        if maker.op_type == "DequantizeLinear" and value in set(_moved_inputs(node))
    ]
    scales = [_scale(maker) for _, _, value in leaves if (maker := value.producer()) is not None]
    largest = max(scale * max(128 + zero, 127 - zero) for scale, zero in filter(None, scales))
    scale = add_constant(model, np.array(largest / LARGEST, np.float32), f"{name}/joined/scale")
    zero = add_constant(model, np.array(0, np.int16), f"{name}/joined/zero_point")
    for node, position, value in leaves:
        one = new_node(node, "QuantizeLinear", [value, scale, zero], name=f"{node.name}/joined/{position}")
        stored = insert_before(model, node, one, f"{value.name}/joined")
        stored.type, stored.shape = ir.TensorType(ir.DataType.INT16), value.shape
        node.replace_input_with(position, stored)
    for node in nodes:
        node.outputs[0].type = ir.TensorType(ir.DataType.INT16)
    output.name = free_name(model, f"{name}/joined")
    last = new_node(nodes[0], "DequantizeLinear", [output, scale, zero], name=f"{nodes[0].name}/joined")
    model.graph.insert_after(nodes[0], last)
    real = last.outputs[0]
    real.name, real.type, real.shape = name, ir.TensorType(ir.DataType.FLOAT), output.shape
    real.metadata_props.update(output.metadata_props)
    model.graph.outputs[index] = real
