"""Nodes that compute the same, and small weights that hold the same, become one.

    x -> Sigmoid -> a                  x -> Sigmoid -> a, b
      \\-> Sigmoid -> b          =>
    w1 = [0.5]  w2 = [0.5]             w1 = [0.5]

onnx-ir's own passes, unchanged. Weights of more than 1024 elements are not compared: two that are equal are
rare.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, DeduplicateInitializersPass


def merge_duplicates(model: ir.Model) -> bool:
    """Merge them; outputs keep their names."""
    weights = DeduplicateInitializersPass()(model).modified
    return CommonSubexpressionEliminationPass()(model).modified or weights
