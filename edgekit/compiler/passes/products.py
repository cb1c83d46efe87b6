"""Matches chains of multiplications and divisions as one product, in any order and grouping.

    (x * Clip(x + 3, 0, 6)) / 6
    x * (Clip(x + 3, 0, 6) * 0.16666667)
    0.5 * x * (1 + Erf(x / 1.4142135))

Comparing products instead of trees recognizes formulas in all their forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from edgekit.compiler.model.rewriting import inner, scalar_of


@dataclass
class Product:
    """``scalar * over[0] * over[1] ... / (under[0] * ...)``"""

    scalar: float = 1.0
    numerators: list[ir.Value] = field(default_factory=list)
    denominators: list[ir.Value] = field(default_factory=list)


def product_of(node: ir.Node) -> Product:
    """Return the product that a Mul, Div, Neg, Reciprocal or Pow computes, expanded into factors with one
    consumer."""
    product = Product()
    _gather(node, product, upward=True)
    return product


def input_product(value: ir.Value | None, user: ir.Node) -> Product:
    """Return an input of ``user`` as a product: one factor if not a product or read by other nodes."""
    product = Product()
    if value is not None:
        _factor(value, user, product, upward=True)
    return product


_OPS = ("Mul", "Div", "Neg", "Reciprocal", "Pow")


def _gather(node: ir.Node, product: Product, upward: bool) -> None:
    match node.op_type:
        case "Mul":
            _factor(node.inputs[0], node, product, upward)
            _factor(node.inputs[1], node, product, upward)
        case "Div":
            _factor(node.inputs[0], node, product, upward)
            _factor(node.inputs[1], node, product, not upward)
        case "Neg":
            product.scalar = -product.scalar
            _factor(node.inputs[0], node, product, upward)
        case "Reciprocal":
            _factor(node.inputs[0], node, product, not upward)
        case "Pow":
            exponent = scalar_of(node.inputs[1])
            if exponent in (2.0, 3.0):
                for _ in range(int(exponent)):
                    _factor(node.inputs[0], node, product, upward)
            else:
                (product.numerators if upward else product.denominators).append(node.outputs[0])


def _factor(value: ir.Value | None, user: ir.Node, product: Product, upward: bool) -> None:
    assert value is not None
    number = scalar_of(value)
    if number is not None and (upward or number != 0):
        product.scalar *= number if upward else 1 / number
        return
    node = inner(value, user, *_OPS)
    if node is not None and len(product.numerators) + len(product.denominators) < 8:
        _gather(node, product, upward)
    else:
        (product.numerators if upward else product.denominators).append(value)


def sum_with_scalar(node: ir.Node | None) -> tuple[ir.Value, float] | None:
    """Return (x, c) of ``x + c``, ``c + x`` or ``x - c``."""
    if node is None or node.op_type not in ("Add", "Sub"):
        return None
    a, b = node.inputs
    assert a is not None
    assert b is not None
    right, left = scalar_of(b), scalar_of(a)
    if right is not None:
        return a, right if node.op_type == "Add" else -right
    if left is not None and node.op_type == "Add":
        return b, left
    return None
