"""An Einsum is written with the products and sums that it is made of.

Einsum<"bqhd,bkhd->bhqk">(q, k)  =>  MatMul(Transpose(q), Transpose(k))

So a weight in it is quantized as any other, attention written by it is recognized, and its Transposes meet
those around it. What stands for it: edgekit/passes/decompositions/einsum.py.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.passes.expand_functions import expand_functions


def write_out_einsum(model: ir.Model) -> bool:
    """Rewrite every Einsum of the main graph with static shapes."""
    return expand_functions(model, lambda node: node.op_type == "Einsum" and not node.domain)
