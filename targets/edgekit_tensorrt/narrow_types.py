"""Rewrites of 8-bit integers, which TensorRT has only as uint8 through Cast and int8 through Q/DQ pairs.

    Clip(0, 255) -> Cast to uint8 -> Cast to float   =>  Clip(0, 255)
    x: int8 -> Cast to float                         =>  DequantizeLinear(x, scale 1)
    Clip(-128, 127) -> Cast to int8 => y             =>  QuantizeLinear(Clip, scale 1) => y
    x: uint8 -> Reshape -> Cast to float             =>  Cast to float -> Reshape

All are the same to the bit. What is left of the first comes from Q/DQ pairs that are written out, because
TensorRT has none with a zero point or with a scale that the model computes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    int_of,
    new_node,
    node_name,
    nodes_of,
    only_consumer,
    put_before,
    remove_unread,
    replace_node,
    scalar_of,
)
from edgekit.diagnostics import Finding

FLOAT = ir.DataType.FLOAT
NARROW = (ir.DataType.INT8, ir.DataType.UINT8)
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity")
QDQ = ("QuantizeLinear", "DequantizeLinear")


def without_narrow_values(model: ir.Model) -> None:
    """Rewrite the main graph, in place."""
    for _, node in nodes_of(model, "Cast"):
        if ir.DataType(int_of(node, "to", 0)) == FLOAT:
            _cast_earlier(model, node)
    for _, node in nodes_of(model, "Cast"):
        if node.graph is not None and ir.DataType(int_of(node, "to", 0)) == FLOAT:
            _there_and_back(node)
    for _, node in nodes_of(model, "Cast"):
        _as_pair(model, node)


def _cast_earlier(model: ir.Model, node: ir.Node) -> None:
    """Move a Cast to float before the data movement that it reads."""
    while True:
        x = node.inputs[0]
        move = x.producer() if x is not None and x.dtype in NARROW else None
        if x is None or move is None or move.op_type not in MOVES or only_consumer(x) is not node:
            return
        source = move.inputs[0]
        dims = dims_of(source)
        if source is None or dims is None:
            return
        cast = put_before(model, move, "Cast", [source], dims, "float", FLOAT, to=int(FLOAT))
        move.replace_input_with(0, cast)
        x.type = ir.TensorType(FLOAT)
        output = node.outputs[0]
        if output.is_graph_output():
            replace_node(node, new_node(node, "Identity", [x]))
        else:
            output.replace_all_uses_with(x)
            remove_unread(node)
        producer = cast.producer()
        assert producer is not None
        node = producer


def _there_and_back(node: ir.Node) -> None:
    """Remove a Cast to float whose input was cast from whole numbers within the range of the type."""
    x = node.inputs[0]
    inner = x.producer() if x is not None and x.dtype in NARROW else None
    if x is None or x.dtype is None or inner is None or inner.op_type != "Cast":
        return
    source = inner.inputs[0]
    if source is None or source.dtype != FLOAT or not _is_whole(source) or not _is_within(source, x.dtype):
        return
    output = node.outputs[0]
    if output.is_graph_output():
        replace_node(node, new_node(node, "Identity", [source]))
        return
    output.replace_all_uses_with(source)
    remove_unread(node)


def _is_whole(value: ir.Value | None) -> bool:
    if value is None:
        return False
    array = array_of(value)
    if array is not None:
        return bool((array == np.round(array)).all())
    node = value.producer()
    if node is None:
        return False
    if node.op_type in ("Round", "Floor", "Ceil"):
        return True
    if node.op_type == "Cast":
        source = node.inputs[0]
        return source is not None and source.dtype is not None and source.dtype.is_integer()
    if node.op_type in ("Clip", "Add", "Sub", "Max", "Min"):
        return all(_is_whole(operand) for operand in node.inputs if operand is not None)
    return node.op_type in MOVES and _is_whole(node.inputs[0])


def _is_within(value: ir.Value, dtype: ir.DataType) -> bool:
    node, limits = value.producer(), np.iinfo(dtype.numpy())
    while node is not None and node.op_type in ("Round", *MOVES) and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or node.op_type != "Clip":
        return False
    low, high = scalar_of(input_of(node, 1)), scalar_of(input_of(node, 2))
    return low is not None and high is not None and limits.min <= low and high <= limits.max


def _as_pair(model: ir.Model, node: ir.Node) -> None:
    """Rewrite a Cast between float and int8, which TensorRT has only as a pair."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or {x.dtype, y.dtype} != {FLOAT, ir.DataType.INT8}:
        return
    inward = x.dtype == FLOAT
    if inward and not (_is_whole(x) and _is_within(x, ir.DataType.INT8)):
        return  # a Cast wraps around where a pair saturates
    scale = add_constant(model, np.ones((), np.float32), f"{y.name}/one")
    zero = add_constant(model, np.zeros((), np.int8), f"{y.name}/zero")
    op = "QuantizeLinear" if inward else "DequantizeLinear"
    replace_node(node, new_node(node, op, [x, scale, zero]))


def pairs_in_float(model: ir.Model, emitted: ir.Model, target: str) -> list[Finding]:
    """Return a warning for each Q and DQ of activations that had to be written out in float32."""
    remaining = {node_name(node) for node in emitted.graph if node.op_type in QDQ}
    left = {node_name(node) for node in emitted.graph}
    findings = []
    for node in model.graph:
        name = node_name(node)
        if node.op_type in QDQ and name in left - remaining and array_of(node.inputs[0]) is None:
            text = "it is computed in float32: TensorRT has pairs with zero point 0 and constant scales only"
            fix = "quantize symmetrically to int8, with zero point 0"
            findings.append(Finding("EK1101", "warning", target, name, node.op_type, text, fix))
    return findings
