"""Recognizes GELU by its two formulas.

    0.5 * x * (1 + Erf(x / sqrt(2)))                                       =>   Gelu(x)
    0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))              =>   Gelu<approximate="tanh">(x)

Grouped in any way, with x^3 as Pow or as products, and also with x * (1 + 0.044715 * x^2). Formulas: ONNX
Gelu-20.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from edgekit.compiler.model.rewriting import close_to, dims_of, inner, new_node, node_pass, replace_node
from edgekit.compiler.passes.products import Product, input_product, product_of, sum_with_scalar

# Exporters write the constants with as few as 4 digits (1.4142, 0.7979).
_TOLERANCE = 1e-4


@node_pass("Mul", "Div")
def recognize_gelu(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite both formulas."""
    product = product_of(node)
    if product.denominators or len(product.numerators) != 2 or not close_to(product.scalar, 0.5):
        return False
    for x, gate in (product.numerators, product.numerators[::-1]):
        form = _gate_of(x, gate)
        if form is not None and dims_of(x) == dims_of(node.outputs[0]) and dims_of(x) is not None:
            replace_node(node, new_node(node, "Gelu", [x], {"approximate": form}))
            return True
    return False


def _gate_of(x: ir.Value, gate: ir.Value) -> str | None:
    """Return Gelu's ``approximate`` if ``gate`` is 1 + Erf or Tanh of the right function of x."""
    add = gate.producer()
    terms = sum_with_scalar(add)
    if add is None or terms is None or not close_to(terms[1], 1) or len(list(gate.uses())) != 1:
        return None
    function = inner(terms[0], add, "Erf", "Tanh")
    if function is None or function.inputs[0] is None:
        return None
    argument = input_product(function.inputs[0], function)
    if function.op_type == "Erf":
        return "none" if _is(argument, [x], math.sqrt(0.5)) else None
    return "tanh" if _is_tanh_argument(argument, x, function) else None


def _is(product: Product, operands: list[ir.Value], scalar: float) -> bool:
    return (
        product.numerators == operands
        and not product.denominators
        and close_to(product.scalar, scalar, _TOLERANCE)
    )


def _is_tanh_argument(argument: Product, x: ir.Value, user: ir.Node) -> bool:
    if argument.denominators or not close_to(argument.scalar, math.sqrt(2 / math.pi), _TOLERANCE):
        return False
    if len(argument.numerators) == 1:  # c * (x + k x^3)
        add = argument.numerators[0].producer()
        if add is None or add.op_type != "Add" or len(list(argument.numerators[0].uses())) != 1:
            return False
        cubes = [value for value in add.inputs if value is not x]
        return len(cubes) == 1 and _is(input_product(cubes[0], add), [x, x, x], 0.044715)
    if len(argument.numerators) == 2 and x in argument.numerators:  # c * x * (1 + k x^2)
        bracket = argument.numerators[1] if argument.numerators[0] is x else argument.numerators[0]
        add = bracket.producer()
        terms = sum_with_scalar(add)
        if add is None or terms is None or not close_to(terms[1], 1) or len(list(bracket.uses())) != 1:
            return False
        return _is(input_product(terms[0], add), [x, x], 0.044715)
    return False
