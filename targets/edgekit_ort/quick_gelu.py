"""Fuse SiLU into one node after a DequantizeLinear.

ONNX Runtime fuses x * Sigmoid(x) to QuickGelu by itself, but where x comes from a DequantizeLinear it has
given each reader one of its own by then, and the two no longer read the same value: YOLOX-nano ran Sigmoid
and Mul apart on 217 DequantizeLinear nodes, 10.7 ms instead of 8.2.

com.microsoft.QuickGelu(x) = x * Sigmoid(alpha * x), in every version since 1.11:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftquickgelu
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import producer_of, replace_node
from edgekit.compiler.quantize.placement.kernels import silu_of

DOMAIN = "com.microsoft"


def with_quick_gelu(model: ir.Model) -> ir.Model:
    """Return a copy of the model with QuickGelu for every SiLU after a DequantizeLinear, or the model
    itself."""
    if not any(_silu_after_integers(value) for node in model.graph for value in node.outputs):
        return model
    copy = model.clone()
    for node in list(copy.graph):
        match = _silu_after_integers(node.outputs[0]) if node.outputs else None
        if match is not None:
            product = match[1]
            replace_node(product, _quick_gelu(node.outputs[0], str(product.name)))
    copy.opset_imports.setdefault(DOMAIN, 1)
    return copy


def _silu_after_integers(value: ir.Value) -> tuple[ir.Node, ir.Node] | None:
    return silu_of(value) if producer_of(value, "DequantizeLinear") else None


def _quick_gelu(x: ir.Value, name: str) -> ir.Node:

    return ir.node("QuickGelu", [x], attributes={"alpha": 1.0}, domain=DOMAIN, name=name)
