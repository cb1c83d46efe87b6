"""Decomposes a Resize that a target's engine does not support, into products with constant matrices.

    Resize<linear, antialias=1>(x: 1x3x8x8, sizes: 1x3x4x4)  =>  MatMul(MatMul(m: 4x8, x), n: 8x4)
    Resize<nearest, tf_crop_and_resize>(x, roi)              =>  Gather -> Gather -> Where

Every ONNX resize is separable and linear (compiler/model/resize_matrix.py), so this is exact. Not one of
``PASSES``: a kernel is faster. A target selects the nodes, on its own copy of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.resize_matrix import ResizeAxis, resize_lines
from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    float_of,
    input_of,
    int_of,
    ints_of,
    new_node,
    nodes_of,
    put_before,
    replace_node,
    text_of,
)
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


def write_out_resize(model: ir.Model, predicate: Callable[[ir.Node], bool]) -> bool:
    """Rewrite, in place, every wanted Resize whose sizes, scales and roi are weights."""
    changed = False
    for _, node in nodes_of(model, "Resize"):
        if predicate(node):
            changed |= _write_out(model, node)
    return changed


def _write_out(model: ir.Model, node: ir.Node) -> bool:
    x, before, after = node.inputs[0], dims_of(node.inputs[0]), dims_of(node.outputs[0])
    values = [input_of(node, index) for index in (1, 2, 3)]
    roi, scales, sizes = (array_of(value) for value in values)
    is_constant = all(value is None or array_of(value) is not None for value in values)
    if x is None or x.dtype is None or before is None or after is None or not is_constant:
        return False
    transformation = text_of(node, "coordinate_transformation_mode", "half_pixel")
    policy = text_of(node, "keep_aspect_ratio_policy", "stretch")
    axes = [axis % len(before) for axis in ints_of(node, "axes", range(len(before)))]
    mode = text_of(node, "mode", "nearest")
    try:
        lines = resize_lines(before, after, axes, transformation, policy, scales, sizes, roi)
        operands = [None if line.is_identity else _operand(node, line, mode) for line in lines]
    except Inexpressible:
        return False
    for axis, operand in enumerate(operands):
        if operand is not None:
            x = _along(
                model, node, x, axis, operand.astype(x.dtype.numpy() if operand.ndim == 2 else np.int64)
            )
    if transformation == "tf_crop_and_resize":
        x = _outside(model, node, x, lines)
    assert x is not None
    replace_node(node, new_node(node, "Identity", [x]))
    return True


def _operand(node: ir.Node, line: ResizeAxis, mode: str) -> Array:
    """Return the indices of a nearest neighbour, or the matrix of an interpolation."""
    if mode == "nearest":
        return line.indices(text_of(node, "nearest_mode", "round_prefer_floor"))
    antialias, exclude = bool(int_of(node, "antialias", 0)), bool(int_of(node, "exclude_outside", 0))
    return line.matrix(mode, float_of(node, "cubic_coeff_a", -0.75), antialias, exclude, 0.0)


def _along(model: ir.Model, node: ir.Node, x: ir.Value, axis: int, operand: Array) -> ir.Value:
    dims = dims_of(x)
    assert dims is not None
    name, rank = f"{node.outputs[0].name}/axis_{axis}", len(dims)
    out_dims = (*dims[:axis], operand.shape[0], *dims[axis + 1 :])
    if operand.ndim == 1:
        picked = add_constant(model, operand, f"{name}/indices")
        return put_before(model, node, "Gather", [x, picked], out_dims, f"{axis}/Gather", axis=axis)
    if axis == rank - 2:
        matrix = add_constant(model, operand, f"{name}/matrix")
        return put_before(model, node, "MatMul", [matrix, x], out_dims, f"{axis}/MatMul")
    matrix = add_constant(model, np.ascontiguousarray(operand.T), f"{name}/matrix")
    if axis == rank - 1:
        return put_before(model, node, "MatMul", [x, matrix], out_dims, f"{axis}/MatMul")
    order = [*(a for a in range(rank) if a != axis), axis]
    back = [order.index(a) for a in range(rank)]
    last, out_last = (tuple(sizes[a] for a in order) for sizes in (dims, out_dims))
    transposed = put_before(model, node, "Transpose", [x], last, f"{axis}/last", perm=order)
    product = put_before(model, node, "MatMul", [transposed, matrix], out_last, f"{axis}/MatMul")
    return put_before(model, node, "Transpose", [product], out_dims, f"{axis}/back", perm=back)


def _outside(model: ir.Model, node: ir.Node, x: ir.Value, lines: list[ResizeAxis]) -> ir.Value:
    """Set points outside of the input along any axis to ``extrapolation_value``."""
    in_range: Array = np.ones((), bool)
    for line in lines:
        in_range = in_range[..., None] & ((line.coordinates >= 0) & (line.coordinates <= line.size - 1))
    if in_range.all():
        return x
    assert x.dtype is not None
    dims = dims_of(x)
    assert dims is not None
    name = node.outputs[0].name
    mask = add_constant(model, in_range, f"{name}/inside")
    number = np.array(float_of(node, "extrapolation_value", 0.0), x.dtype.numpy())
    value = add_constant(model, number, f"{name}/extrapolation")
    return put_before(model, node, "Where", [mask, x, value], dims, "Where")
