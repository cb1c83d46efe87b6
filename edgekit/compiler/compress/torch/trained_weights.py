"""Choice of the initializers of a graph that are weights, which training may change."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, producer_of

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
WEIGHT_INPUTS: Mapping[str, tuple[int, ...]] = {
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "LayerNormalization": (1, 2),
    "RMSNormalization": (1,),
    "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "BatchNormalization": (1, 2),
}
"""Inputs of a node that are weights if they are constant."""
MOVES = (
    "Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Pad", "Slice", "Concat", "Split",
    "DepthToSpace", "SpaceToDepth", "Gather", "Expand", "Tile",
)  # fmt: skip
"""What passes the values of an input on as they are."""


def trained_weights(model: ir.Model) -> list[str]:
    """Return the names of the float initializers that are weights, in the order of their nodes.

    The constant of an Add is a weight if it is added to a product (a bias). Other constants of elementwise
    operators are not weights: they are a detector's grids and anchors, or scales of a formula.
    """
    names: dict[str, None] = {}
    for node in model.graph:
        if node.domain:
            continue
        for index in _weight_inputs(node):
            value = node.inputs[index] if index < len(node.inputs) else None
            array = array_of(value)
            if value is not None and array is not None and array.dtype.kind == "f":
                names[str(value.name)] = None
    return list(names)


def _weight_inputs(node: ir.Node) -> tuple[int, ...]:
    if node.op_type == "Add":
        products = [producer_of(value, *PRODUCTS) is not None for value in node.inputs]
        return tuple(index for index in (0, 1) if products[1 - index])
    return WEIGHT_INPUTS.get(node.op_type, ())


def first_weights(model: ir.Model) -> dict[str, str]:
    """Map weights that are multiplied with an input of the graph to that input's name."""
    roots = {str(value.name): str(value.name) for value in model.graph.inputs}
    input_by_weight: dict[str, str] = {}
    for node in model.graph:
        read = next((roots[str(v.name)] for v in node.inputs if v is not None and str(v.name) in roots), None)
        if read is None or node.domain:
            continue
        if node.op_type in MOVES:
            roots.update({str(value.name): read for value in node.outputs})
        elif node.op_type in PRODUCTS:
            for value in node.inputs[:2]:
                if value is not None and array_of(value) is not None:
                    input_by_weight[str(value.name)] = read
    return input_by_weight
