"""Recognizes HardSigmoid and HardSwish in the clips that exporters write.

    Clip(x + 3, 0, 6) / 6                            =>   HardSigmoid<alpha=1/6, beta=1/2>(x)
    Clip(a * x + b, 0, 1)                            =>   HardSigmoid<a, b>(x)
    x * Clip(x + 3, 0, 6) / 6, grouped in any way    =>   HardSwish(x)
    x * HardSigmoid<1/6, 1/2>(x)                     =>   HardSwish(x)

HardSwish(x) = x * max(0, min(1, x / 6 + 1 / 2)), ONNX HardSwish-14.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    close_to,
    dims_of,
    float_of,
    inner,
    input_of,
    new_node,
    node_pass,
    only_consumer,
    replace_node,
    scalar_of,
)
from edgekit.compiler.passes.products import input_product, product_of, sum_with_scalar


@dataclass(frozen=True)
class _Gate:
    """``height * clip(alpha * x + beta, 0, 1)``; ``affine`` if an Add or Mul of the graph spells the
    inside."""

    x: ir.Value
    height: float
    alpha: float
    beta: float
    affine: bool


@node_pass("Clip", "Mul", "Div")
def recognize_hard_swish(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite both, the products around them first read as one."""
    if node.op_type == "Clip":
        gate = _gate(node)
        if gate is not None and gate.affine and close_to(gate.height, 1) and _fits(gate, node):
            replace_node(node, _hard_sigmoid(node, gate))
            return True
        return False
    product = product_of(node)
    if product.denominators or not 1 <= len(product.numerators) <= 2:
        return False
    for position, value in enumerate(product.numerators):
        others = product.numerators[:position] + product.numerators[position + 1 :]
        gate = _gate(value.producer()) if only_consumer(value) is not None else None
        if gate is None or not close_to(product.scalar * gate.height, 1) or not _fits(gate, node):
            continue
        if not others and gate.affine:
            replace_node(node, _hard_sigmoid(node, gate))
        elif others == [gate.x] and close_to(gate.alpha, 1 / 6) and close_to(gate.beta, 1 / 2):
            replace_node(node, new_node(node, "HardSwish", [gate.x]))
        else:
            continue
        return True
    return False


def _hard_sigmoid(node: ir.Node, gate: _Gate) -> ir.Node:
    return new_node(node, "HardSigmoid", [gate.x], {"alpha": gate.alpha, "beta": gate.beta})


def _fits(gate: _Gate, node: ir.Node) -> bool:
    """Check that no constant has a higher rank than x, which would change the result's rank."""
    return dims_of(gate.x) is not None and dims_of(gate.x) == dims_of(node.outputs[0])


def _gate(node: ir.Node | None) -> _Gate | None:
    if node is None or node.domain or node.inputs[0] is None:
        return None
    if node.op_type == "HardSigmoid":
        return _Gate(node.inputs[0], 1.0, float_of(node, "alpha", 0.2), float_of(node, "beta", 0.5), False)
    if node.op_type != "Clip" or scalar_of(input_of(node, 1)) != 0:
        return None
    height = scalar_of(input_of(node, 2))
    if height is None or height <= 0:
        return None
    add = inner(node.inputs[0], node, "Add", "Sub")
    terms = sum_with_scalar(add)
    if add is None or terms is None:
        return None
    linear = input_product(terms[0], add)
    if len(linear.numerators) != 1 or linear.denominators:
        return None
    return _Gate(linear.numerators[0], height, linear.scalar / height, terms[1] / height, True)
