"""Merges chains of data-movement ops into one node.

Transpose(p) -> Transpose(q)                        =>   Transpose(p then q), nothing if that moves nothing
Reshape | Squeeze | Unsqueeze | Flatten -> (again)  =>   Reshape to the last shape
Sum(a, b)                                           =>   Add(a, b)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    bypass,
    dims_of,
    inner,
    ints_of,
    new_node,
    node_pass,
    replace_node,
)

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


@node_pass("Transpose", *_RESHAPES, "Sum")
def merge_moves(model: ir.Model, node: ir.Node) -> bool:
    """Merge neighbours in the order of the graph, so that a chain of any length ends as one node."""
    if node.op_type == "Sum":
        if len(node.inputs) == 2:
            replace_node(node, new_node(node, "Add", list(node.inputs)))
        return len(node.inputs) == 2
    return _transposes(node) if node.op_type == "Transpose" else _reshapes(model, node)


def _transposes(node: ir.Node) -> bool:
    before = inner(node.inputs[0], node, "Transpose")
    if before is None or before.inputs[0] is None:
        return False
    first, second = _perm(before), _perm(node)
    if first is None or second is None:
        return False
    both = [first[axis] for axis in second]
    if both == sorted(both) and bypass(node, before.inputs[0]):
        return True
    replace_node(node, new_node(node, "Transpose", [before.inputs[0]], {"perm": both}))
    return True


def _perm(node: ir.Node) -> list[int] | None:
    dims = dims_of(node.inputs[0])
    if dims is None:
        return None
    return ints_of(node, "perm", range(len(dims) - 1, -1, -1))


def _reshapes(model: ir.Model, node: ir.Node) -> bool:
    before = inner(node.inputs[0], node, *_RESHAPES)
    dims = dims_of(node.outputs[0])
    if before is None or before.inputs[0] is None or dims is None or 0 in dims:
        return False
    if dims == dims_of(before.inputs[0]) and bypass(node, before.inputs[0]):
        return True
    shape = add_constant(model, np.array(dims, np.int64), f"{node.outputs[0].name}/shape")
    replace_node(node, new_node(node, "Reshape", [before.inputs[0], shape]))
    return True
