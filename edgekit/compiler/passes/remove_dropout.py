"""Removes Dropout, which only training needs.

    y = Dropout(x, ratio)          =>   y = Identity(x)
    y, mask = Dropout(x)           =>   y = Identity(x), mask a constant of true: nothing is dropped

Only if training_mode is omitted or a constant false. remove_identities removes the Identity, unless it
produces a graph output. A Dropout must not stay there: OpenVINO 2026.4 does not write the output of a final
Dropout.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    new_node,
    node_pass,
    replace_node,
)


@node_pass("Dropout")
def remove_dropout(model: ir.Model, node: ir.Node) -> bool:
    """Replace every Dropout by an Identity; runs after folding, so that training_mode is a weight."""
    return not _trains(node) and _remove(model, node)


def _trains(node: ir.Node) -> bool:
    if input_of(node, 2) is None:
        return False
    training, ratio = array_of(node.inputs[2]), array_of(input_of(node, 1))
    drops_none = ratio is not None and not ratio.any()
    return (training is None or bool(training.any())) and not drops_none


def _remove(model: ir.Model, node: ir.Node) -> bool:
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and (mask.uses() or mask.is_graph_output()):
        dims = dims_of(mask)
        if dims is None or mask.dtype is None:
            return False
        _give_mask(model, node, mask, dims, mask.dtype)
    replace_node(node, new_node(node, "Identity", [node.inputs[0]]))
    return True


def _give_mask(
    model: ir.Model, node: ir.Node, mask: ir.Value, dims: tuple[int, ...], dtype: ir.DataType
) -> None:
    assert node.graph is not None
    ones = add_constant(model, np.ones(dims, dtype.numpy()), f"{mask.name}/kept")
    if not mask.is_graph_output():
        mask.replace_all_uses_with(ones)
        return
    named = new_node(node, "Identity", [ones], name=f"{node.name}/mask")
    result = named.outputs[0]
    result.type, result.shape = mask.type, mask.shape
    node.graph.insert_before(node, named)
    mask.replace_all_uses_with(result, replace_graph_outputs=True)
    result.name, mask.name = mask.name, f"{mask.name}/dropped"
