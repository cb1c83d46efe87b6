"""Decomposes Einsum into products and sums.

Einsum<"bqhd,bkhd->bhqk">(q, k)  =>  MatMul(Transpose(q), Transpose(k))

So its weights can be quantized, attention can be recognized, and its Transposes can be merged with others.
The decomposition: edgekit/compiler/passes/decompositions/einsum.py.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.passes.expand_functions import expand_functions


def write_out_einsum(model: ir.Model) -> bool:
    """Rewrite every Einsum of the main graph with static shapes."""
    return expand_functions(model, lambda node: node.op_type == "Einsum" and not node.domain)
