"""Recognizes LayerNormalization and RMSNormalization from primitives.

    d = x - Mean(x)
    d / Sqrt(Mean(d^2) + eps) * gamma + beta    =>   LayerNormalization<axis, eps>(x, gamma, beta)
    x / Sqrt(Mean(x^2) + eps) * gamma           =>   RMSNormalization<axis, eps>(x, gamma)

Over trailing axes, kept by the means; d^2 as Pow or as Mul; the division also as a product with
Reciprocal(Sqrt), 1 / Sqrt or Pow(-0.5). gamma and beta are constants of the shape of those axes, or are
missing (then gamma is ones).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    close_to,
    dims_of,
    inner,
    input_of,
    int_of,
    node_pass,
    only_consumer,
    producer_of,
    replace_node,
    scalar_of,
)
from edgekit.compiler.passes.products import input_product, product_of, sum_with_scalar
from edgekit.tensor_spec import Array


@node_pass("Div", "Mul")
def recognize_normalization(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite both. No value of the chain may have other consumers, so that nothing is computed twice."""
    match = _normalized(node)
    if match is None:
        return False
    value, axis, epsilon = match
    dims = dims_of(value)
    if dims is None or dims != dims_of(node.outputs[0]) or value.dtype is None:
        return False
    centred = _centred(value, axis)
    x = value if centred is None else centred
    last, gamma = _affine(node, "Mul", dims[axis:])
    beta = None
    if centred is not None:
        last, beta = _affine(last, "Add", dims[axis:])
    stem = last.outputs[0].name
    dtype = value.dtype.numpy()
    scale = add_constant(model, np.ones(dims[axis:], dtype) if gamma is None else gamma, f"{stem}/gamma")
    inputs = [x, scale]
    if beta is not None:
        inputs.append(add_constant(model, beta, f"{stem}/beta"))
    op = "RMSNormalization" if centred is None else "LayerNormalization"
    attributes: dict[str, int | float] = {"axis": axis - len(dims), "epsilon": epsilon}
    replace_node(last, ir.node(op, inputs, attributes, name=last.name))
    return True


def _normalized(node: ir.Node) -> tuple[ir.Value, int, float] | None:
    """Return (v, first axis, epsilon) if the node computes ``v / Sqrt(Mean(v^2) + epsilon)``."""
    product = product_of(node)
    if (
        not close_to(product.scalar, 1)
        or len(product.numerators) + len(product.denominators) != 2
        or not product.numerators
    ):
        return None
    if product.denominators:
        value, root = product.numerators[0], product.denominators[0].producer()
        if root is None or root.op_type != "Sqrt":
            return None
    else:
        roots = [
            v
            for v in product.numerators
            if (p := producer_of(v, "Pow")) is not None and scalar_of(p.inputs[1]) == -0.5
        ]
        if len(roots) != 1:
            return None
        root = roots[0].producer()
        value = next(v for v in product.numerators if v is not roots[0])
    if root is None or len(list(root.outputs[0].uses())) != 1 or root.outputs[0].is_graph_output():
        return None
    add = inner(root.inputs[0], root, "Add")
    terms = sum_with_scalar(add)
    mean = inner(terms[0], add, "ReduceMean") if terms is not None and add is not None else None
    if mean is None or terms is None or terms[1] < 0:
        return None
    axis = _trailing_axis(mean)
    squares = input_product(mean.inputs[0], mean)
    if (
        axis is None
        or squares.denominators
        or squares.numerators != [value, value]
        or not close_to(squares.scalar, 1)
    ):
        return None
    return value, axis, terms[1]


def _trailing_axis(mean: ir.Node) -> int | None:
    """Return the first axis of a ReduceMean, if its axes are the last ones and it keeps them."""
    dims, axes = dims_of(mean.inputs[0]), array_of(input_of(mean, 1))
    if dims is None or axes is None or not axes.size or int_of(mean, "keepdims", 1) != 1:
        return None
    sorted_axes = sorted(int(a) % len(dims) for a in axes)
    return sorted_axes[0] if sorted_axes == list(range(sorted_axes[0], len(dims))) else None


def _centred(value: ir.Value, axis: int) -> ir.Value | None:
    """Return x if ``value`` is ``x - Mean(x)`` over the same axes."""
    sub = producer_of(value, "Sub")
    if sub is None or value.is_graph_output() or sub.inputs[0] is None:
        return None
    mean = inner(sub.inputs[1], sub, "ReduceMean")
    if mean is None or mean.inputs[0] is not sub.inputs[0] or _trailing_axis(mean) != axis:
        return None
    return sub.inputs[0]


def _affine(node: ir.Node, op: str, dims: tuple[int, ...]) -> tuple[ir.Node, Array | None]:
    """Return the Mul or Add of a constant of shape ``dims`` after the node, and it; else the node."""
    user = only_consumer(node.outputs[0])
    if user is None or user.op_type != op or user.domain:
        return node, None
    other = user.inputs[1] if user.inputs[0] is node.outputs[0] else user.inputs[0]
    array = array_of(other)
    if array is None or dims_of(user.outputs[0]) != dims_of(node.outputs[0]):
        return node, None
    if array.size == 1:
        return user, np.full(dims, array.reshape(()))
    shape = array.shape
    while len(shape) > len(dims) and shape[0] == 1:
        shape = shape[1:]
    return (user, array.reshape(dims)) if shape == dims else (node, None)
