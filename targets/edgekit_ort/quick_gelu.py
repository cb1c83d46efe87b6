"""Fuse SiLU into one node after a DequantizeLinear.

ONNX Runtime fuses x * Sigmoid(x) to QuickGelu by itself, but if x comes from a DequantizeLinear it has
given each reader one of its own by then, and the two no longer read the same value: YOLOX-nano ran Sigmoid
and Mul apart on 217 DequantizeLinear nodes, 10.7 ms instead of 8.2.

com.microsoft.QuickGelu(x) = x * Sigmoid(alpha * x), in every version since 1.11:
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#commicrosoftquickgelu
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.model.rewriting import replace_node, rewritten_copy
from edgekit.compiler.quantize.placement.kernels import silu_of

DOMAIN = "com.microsoft"


def with_quick_gelu(model: ir.Model) -> ir.Model:
    """Return a copy with QuickGelu for every SiLU after a DequantizeLinear, or the model itself."""
    return rewritten_copy(model, _silu_after_integers, _fuse)


def _silu_after_integers(node: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    return silu_of(node.outputs[0]) if node.op_type == "DequantizeLinear" and not node.domain else None


def _fuse(model: ir.Model, node: ir.Node, silu: tuple[ir.Node, ir.Node]) -> None:
    x, product = node.outputs[0], silu[1]
    fused = ir.node("QuickGelu", [x], attributes={"alpha": 1.0}, domain=DOMAIN, name=product.name)
    replace_node(product, fused)
    model.opset_imports.setdefault(DOMAIN, 1)
