"""Floats that are bytes, as an image input of uint8 gives them: quantizing them costs nothing.

    x, uint8 -> Cast -> [Sub(m)] -> Q(1, m) -> DQ(1, m) -> Conv    =>    x -> DQ(1, m) -> Conv

with m a whole number of 0 to 255. Zero is m, so padding is exact. A Q to int8 stays, between integers:
x -> DQ(1, m) -> Q(1, m - 128). OpenVINO's CPU plugin drops Cast, Sub and Q by itself, and multiplies floats
where the Q is absent (2026.4, by its execution graph); for the others they are taken out here.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    free_name,
    input_of,
    nodes_of,
    producer_of,
    remove_unread,
    scalar_of,
)
from edgekit.compiler.passes.remove_dead_code import remove_dead_code


def bytes_below(value: ir.Value) -> tuple[ir.Value, int] | None:
    """Return the uint8 value behind a float, and the whole number from 0 to 255 subtracted from it."""
    less, node = 0.0, producer_of(value, "Sub")
    if node is not None:
        offset = scalar_of(node.inputs[1])
        if offset is None or node.inputs[0] is None or not offset.is_integer() or not 0 <= offset <= 255:
            return None
        less, value = offset, node.inputs[0]
    cast = producer_of(value, "Cast")
    if cast is None or cast.inputs[0] is None or cast.inputs[0].dtype != ir.DataType.UINT8:
        return None
    return cast.inputs[0], int(less)


def with_bytes_read(model: ir.Model) -> ir.Model:
    """Return ``model`` itself, or a copy that reads such bytes as they are stored."""
    if all(held_bytes(node) is None for _, node in nodes_of(model, "QuantizeLinear")):
        return model
    copy = model.clone()
    for _, node in nodes_of(copy, "QuantizeLinear"):
        match = held_bytes(node)
        if match is None:
            continue
        source, zero_point = match
        stored, before = node.outputs[0], node.inputs[0]
        if stored.dtype == ir.DataType.UINT8:
            stored.replace_all_uses_with(source)
            remove_unread(node)
            continue
        name = free_name(copy, f"{source.name}/dequantized")
        zero = add_constant(copy, np.array(zero_point, np.uint8), f"{source.name}/zero_point")
        real = ir.node("DequantizeLinear", [source, node.inputs[1], zero], name=name)
        floats = real.outputs[0]
        floats.name, floats.type, floats.shape = name, ir.TensorType(ir.DataType.FLOAT), source.shape
        assert node.graph is not None
        assert before is not None
        node.graph.insert_before(node, real)
        node.replace_input_with(0, floats)
        if (producer := before.producer()) is not None:
            remove_unread(producer)
    remove_dead_code(copy)
    return copy


def held_bytes(node: ir.Node) -> tuple[ir.Value, int] | None:
    """Return the bytes that a QuantizeLinear returns, or returns less 128, and their zero point."""
    match = bytes_below(node.inputs[0]) if node.inputs[0] is not None else None
    zero_point = array_of(input_of(node, 2))
    if match is None or scalar_of(node.inputs[1]) != 1 or zero_point is None or zero_point.size != 1:
        return None
    if zero_point.dtype not in (np.uint8, np.int8) or node.outputs[0].is_graph_output():
        return None
    offset = int(zero_point.reshape(())) + (128 if zero_point.dtype == np.int8 else 0)
    return match if offset == match[1] else None
