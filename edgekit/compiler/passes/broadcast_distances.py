"""Rewrite the Scan in which scikit-learn's exporter computes distances as one broadcast subtraction.

    Scan(x, rows) body (x, row) -> (x, ReduceSumSquare(x - row, axis 1))
        =>  ReduceSumSquare(x - Unsqueeze(rows, 1), axis 2)        x: N x F, rows: M x F -> M x N

Every k-nearest-neighbours model and Gaussian process of skl2onnx has it, with one iteration per training
sample: too many for ``unroll_loops``, and engines on devices have no Scan.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    int_of,
    ints_of,
    new_node,
    nodes_of,
    producer_of,
    put_before,
    replace_node,
)
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes.fold_constants import fold_constants

MOST_ELEMENTS = 2**24
"""Most elements of the differences, which are computed at once: 64 MB."""


def broadcast_distances(model: ir.Model) -> bool:
    """Rewrite such Scans of the main graph. The opset must be canonical and constants folded."""
    changed = False
    for graph, node in nodes_of(model, "Scan"):
        if graph is model.graph and _is_distance(node):
            changed |= _rewrite(model, node)
    if changed:
        infer_shapes(model)
        fold_constants(model)
    return changed


def _rewrite(model: ir.Model, node: ir.Node) -> bool:
    x, rows = node.inputs
    x_dims, row_dims = dims_of(x), dims_of(rows)
    if x is None or x_dims is None or row_dims is None or len(x_dims) != 2 or len(row_dims) != 2:
        return False
    (count, columns), (length, others) = x_dims, row_dims
    if columns != others or count * columns * length > MOST_ELEMENTS:
        return False
    name = node.outputs[1].name
    one = add_constant(model, np.array([1], np.int64), f"{name}/axis")
    two = add_constant(model, np.array([2], np.int64), f"{name}/columns")
    apart = put_before(model, node, "Unsqueeze", [rows, one], (length, 1, columns), "rows", x.dtype)
    less = put_before(model, node, "Sub", [x, apart], (length, count, columns), "less", x.dtype)
    state, distances = node.outputs
    state.replace_all_uses_with(x)
    node.resize_outputs(2)
    total = new_node(node, "ReduceSumSquare", [less, two], {"keepdims": 0})
    node.outputs[0].name, distances.name = distances.name, node.outputs[0].name
    distances.replace_all_uses_with(node.outputs[0], replace_graph_outputs=True)
    node.outputs[0].type, node.outputs[0].shape = x.type, ir.Shape((length, count))
    replace_node(node, total)
    return True


def _is_distance(node: ir.Node) -> bool:
    """Return whether the body passes its state on and squares its difference to the row, and the state is not
    an output of the model."""
    attributes = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
    if len(node.inputs) != 2 or len(node.outputs) != 2 or node.outputs[0].is_graph_output():
        return False
    if int_of(node, "num_scan_inputs", 1) != 1 or any(any(ints_of(node, name)) for name in attributes):
        return False
    body = node.attributes["body"].as_graph()
    state, row = body.inputs
    if _behind_identities(body.outputs[0]) is not state:
        return False
    total = producer_of(_behind_identities(body.outputs[1]), "ReduceSumSquare")
    if total is None or int_of(total, "keepdims", 1) or len(total.inputs) != 2:
        return False
    axes = array_of(total.inputs[1])
    less = producer_of(_behind_identities(total.inputs[0]), "Sub")
    if axes is None or axes.tolist() not in ([1], [-1]) or less is None:
        return False
    operands = [_behind_identities(value) for value in less.inputs]
    return operands in ([state, row], [row, state])


def _behind_identities(value: ir.Value | None) -> ir.Value | None:
    while (node := producer_of(value, "Identity")) is not None:
        value = node.inputs[0]
    return value
