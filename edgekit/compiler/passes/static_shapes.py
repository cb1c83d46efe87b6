"""Infers type and shape of every value (edgekit/compiler/model/shape_inference.py).

x 1x3x32x32 -> Conv -> y ?  =>  x 1x3x32x32 -> Conv -> y 1x16x32x32
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.shape_inference import infer_shapes


def static_shapes(model: ir.Model) -> bool:
    """Infer all shapes. True if any changed."""
    before = _shapes(model)
    infer_shapes(model)
    return _shapes(model) != before


def _shapes(model: ir.Model) -> list[str]:
    return [f"{v.type} {v.shape}" for node in model.graph.all_nodes() for v in node.outputs]
