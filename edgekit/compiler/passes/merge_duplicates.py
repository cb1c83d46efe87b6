"""Merges equal nodes and equal weights.

    x -> Sigmoid -> a                  x -> Sigmoid -> a, b
      \\-> Sigmoid -> b          =>
    w1 = [0.5]  w2 = [0.5]             w1 = [0.5]

Uses onnx-ir's passes for nodes and for weights of up to 1024 elements. Larger weights, e.g. of layers that
share them, are compared at a few places before they are read as a whole.
"""

from __future__ import annotations

import logging

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, DeduplicateInitializersPass

from edgekit.compiler.model.rewriting import SHARED_FROM_ELEMENTS, array_of, fingerprint, same_bits

# Without a handler Python prints what onnx-ir logs of weights that are outputs.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())


def merge_duplicates(model: ir.Model) -> bool:
    """Merge equal nodes and weights; outputs keep their names."""
    weights = DeduplicateInitializersPass()(model).modified
    weights |= _merge_large_weights(model.graph)
    return CommonSubexpressionEliminationPass()(model).modified or weights


def _merge_large_weights(graph: ir.Graph) -> bool:
    alike: dict[tuple[object, ...], list[ir.Value]] = {}
    changed = False
    for name, value in list(graph.initializers.items()):
        array = array_of(value)
        if array is None or array.size < SHARED_FROM_ELEMENTS or value.is_graph_output():
            continue
        if (key := fingerprint(array)) is None:
            continue
        for first in alike.setdefault(key, []):
            stored = array_of(first)
            if stored is not None and same_bits(stored, array):
                value.replace_all_uses_with(first)
                del graph.initializers[name]
                changed = True
                break
        else:
            alike[key].append(value)
    return changed
