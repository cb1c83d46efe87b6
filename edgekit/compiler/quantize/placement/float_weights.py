"""Converts weights that a model stores as integers back to float.

    weight int8 -> DequantizeLinear -> Conv      =>      weight float32 -> Conv

A model with weight-only quantization computes in float; without this, its layers would count as layers
without constant weights. Q/DQ pairs around activations are kept.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.node_evaluation import evaluate_node
from edgekit.compiler.model.rewriting import add_constant, array_of, nodes_of, opset_of
from edgekit.compiler.passes.remove_dead_code import remove_dead_code


def with_float_weights(model: ir.Model) -> ir.Model:
    """Return a copy with every DequantizeLinear of constants folded, or the model itself if it has none."""
    if not any(_is_constant(node) for _, node in nodes_of(model, "DequantizeLinear")):
        return model
    copy = model.clone()
    opset = opset_of(copy.opset_imports.items())
    for _, node in nodes_of(copy, "DequantizeLinear"):
        if not _is_constant(node):
            continue
        results = evaluate_node(node, [array_of(value) for value in node.inputs], opset)
        if results is not None and not node.outputs[0].is_graph_output():
            name = str(node.outputs[0].name)
            node.outputs[0].replace_all_uses_with(add_constant(copy, results[0], f"{name}/real"))
    remove_dead_code(copy)
    return copy


def _is_constant(node: ir.Node) -> bool:
    return all(value is None or array_of(value) is not None for value in node.inputs)
