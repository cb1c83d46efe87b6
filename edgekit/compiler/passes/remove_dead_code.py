"""Removes nodes and weights that no output needs.

x -> Conv -> y                    x -> Conv -> y
  \\-> Relu -> (unused)      =>
"""

from __future__ import annotations

import onnx_ir as ir


def remove_dead_code(model: ir.Model) -> bool:
    """Remove nodes and weights without consumers. Inputs stay: they are the signature."""
    changed = False
    for graph in [*reversed(list(model.graph.subgraphs())), model.graph]:
        for node in reversed(list(graph)):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                graph.remove(node, safe=True)
                changed = True
    for graph in model.graphs():
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]
                changed = True
    return changed
