"""Removes nodes that return their input unchanged.

x -> Identity | Cast to x's type | Reshape, Expand to x's shape | Transpose(0,1,2..) | Slice of all
|
     Concat, Sum, Max, Min of x alone | Split into one | Pad by 0 | Clip without bounds | Mul, Div by 1 |
     Add, Sub 0 | Pow 1 | Resize by 1 -> y              =>    x -> y
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    array_of,
    bypass,
    dims_of,
    input_of,
    int_of,
    ints_of,
    nodes_of,
    text_of,
)


def remove_identities(model: ir.Model) -> bool:
    """Remove them. One stays if it connects an input or a weight to a graph output."""
    changed = False
    for _, node in nodes_of(model, *_SOURCES):
        source = _SOURCES[node.op_type](node)
        if source is not None and source.dtype == node.outputs[0].dtype:
            changed |= bypass(node, source)
    return changed


def _always(node: ir.Node) -> ir.Value | None:
    return node.inputs[0]


def _cast(node: ir.Node) -> ir.Value | None:
    source = node.inputs[0]
    return source if source is not None and source.dtype == ir.DataType(int_of(node, "to", 0)) else None


def _same_shape(node: ir.Node) -> ir.Value | None:
    dims = dims_of(node.inputs[0])
    return node.inputs[0] if dims is not None and dims == dims_of(node.outputs[0]) else None


def _transpose(node: ir.Node) -> ir.Value | None:
    perm = ints_of(node, "perm")
    return node.inputs[0] if perm and perm == sorted(perm) else None


def _slice(node: ir.Node) -> ir.Value | None:
    steps = array_of(input_of(node, 4))
    forward = input_of(node, 4) is None or (steps is not None and bool((steps > 0).all()))
    return _same_shape(node) if forward else None


def _single_input(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _split(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if len(node.outputs) == 1 else None


def _pad(node: ir.Node) -> ir.Value | None:
    pads = array_of(input_of(node, 1))
    return node.inputs[0] if pads is not None and not pads.any() else None


def _clip(node: ir.Node) -> ir.Value | None:
    bounds = [array_of(value) for value in node.inputs[1:] if value is not None]
    ends = [-np.inf, np.inf] if len(node.inputs) == 3 and None not in node.inputs else None
    if not bounds:
        return node.inputs[0]
    if ends and all(
        b is not None and b.dtype.kind == "f" and b.size == 1 and bool(b == e)
        for b, e in zip(bounds, ends, strict=True)
    ):
        return node.inputs[0]
    return None


def _neutral(number: float, either_side: bool) -> Callable[[ir.Node], ir.Value | None]:
    """Return a function that gives x for ``x op number`` equal to x (or ``number op x``), else None."""

    def source(node: ir.Node) -> ir.Value | None:
        for index, other in ((0, 1), (1, 0)) if either_side else ((0, 1),):
            array = array_of(node.inputs[other])
            if array is not None and array.size and bool((array == number).all()):
                dims = dims_of(node.inputs[index])
                if dims is not None and dims == dims_of(node.outputs[0]):
                    return node.inputs[index]
        return None

    return source


def _resize(node: ir.Node) -> ir.Value | None:
    scales = array_of(input_of(node, 2))
    plain = text_of(node, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    return (
        node.inputs[0] if plain and scales is not None and scales.size and bool((scales == 1).all()) else None
    )


_SOURCES: dict[str, Callable[[ir.Node], ir.Value | None]] = {
    "Add": _neutral(0, either_side=True),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _single_input,
    "Div": _neutral(1, either_side=False),
    "Expand": _same_shape,
    "Flatten": _same_shape,
    "Identity": _always,
    "Max": _single_input,
    "Min": _single_input,
    "Mul": _neutral(1, either_side=True),
    "Pad": _pad,
    "Pow": _neutral(1, either_side=False),
    "Reshape": _same_shape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _same_shape,
    "Sub": _neutral(0, either_side=False),
    "Sum": _single_input,
    "Transpose": _transpose,
    "Unsqueeze": _same_shape,
}
