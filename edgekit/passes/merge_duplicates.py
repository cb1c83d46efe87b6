"""Merges equal nodes and equal small weights.

    x -> Sigmoid -> a                  x -> Sigmoid -> a, b
      \\-> Sigmoid -> b          =>
    w1 = [0.5]  w2 = [0.5]             w1 = [0.5]

Uses onnx-ir's passes. Weights of more than 1024 elements are not compared, because equal ones are rare.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import CommonSubexpressionEliminationPass, DeduplicateInitializersPass


def merge_duplicates(model: ir.Model) -> bool:
    """Merge equal nodes and weights; outputs keep their names."""
    weights = DeduplicateInitializersPass()(model).modified
    return CommonSubexpressionEliminationPass()(model).modified or weights
