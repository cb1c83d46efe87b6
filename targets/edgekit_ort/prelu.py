"""Write out PRelu as relu(x) - slope * relu(-x), which ONNX Runtime computes faster.

Its kernel of PRelu branches on each element's sign, which is slow on inputs that the branch predictor has not
seen; a benchmark that repeats one small input hides it. The operators here are vectorized, the first Relu is
fused into a Conv before it, and the result is equal bit for bit, because one of the two terms is zero.
``python -m tests.benchmarks.scoreboard cell palm-full ort`` measures it: "EdgeKit, fp32" is written out, and
"source model, fp32" is not.
"""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import new_node, put_before, replace_node, rewritten_copy

LEAST_ELEMENTS = 512
"""Below this, four more nodes cost more than the kernel."""


def with_prelu_written_out(model: ir.Model) -> ir.Model:
    """Return a copy with float32 PRelus of at least LEAST_ELEMENTS written out, or the model itself."""
    return rewritten_copy(model, _is_slow, _write_out)


def _is_slow(node: ir.Node) -> bool:
    if node.op_type != "PRelu" or node.domain:
        return False
    x = node.inputs[0]
    dims = static_dims(x)
    return dims is not None and x is not None and str(x.dtype) == "FLOAT" and prod(dims) >= LEAST_ELEMENTS


def _write_out(model: ir.Model, node: ir.Node, is_slow: bool) -> None:
    x, slope = node.inputs
    dims = static_dims(x) or ()
    above = put_before(model, node, "Relu", [x], dims, "above")
    negated = put_before(model, node, "Neg", [x], dims, "negated")
    below = put_before(model, node, "Relu", [negated], dims, "below")
    scaled = put_before(model, node, "Mul", [below, slope], dims, "scaled")
    replace_node(node, new_node(node, "Sub", [above, scaled]))
