"""Decomposes a Pad that a target's engine does not support or computes incorrectly.

    Pad(x, pads, value computed by the model)  =>  Where(inside, Pad(x, pads), value)
    Pad<wrap>(x, pads)                         =>  Gather(x, indices around the end) for each axis

Not one of ``PASSES``: a kernel is faster. A target selects the nodes, on its own copy of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    input_of,
    insert_before,
    new_node,
    nodes_of,
    replace_node,
    text_of,
)
from edgekit.tensor_spec import Array


def write_out_pad(model: ir.Model, predicate: Callable[[ir.Node], bool]) -> bool:
    """Rewrite, in place, every wanted Pad with constant pads that wraps, or fills with a computed value."""
    changed = False
    for _, node in nodes_of(model, "Pad"):
        pads, dims = array_of(node.inputs[1]), dims_of(node.inputs[0])
        if pads is None or dims is None or not predicate(node):
            continue
        raw_axes = array_of(input_of(node, 3))
        axes = [int(axis) % len(dims) for axis in (range(len(dims)) if raw_axes is None else raw_axes)]
        ends = {axis: (int(pads[k]), int(pads[k + len(axes)])) for k, axis in enumerate(axes)}
        value = input_of(node, 2)
        mode = text_of(node, "mode", "constant")
        if mode == "wrap":
            changed |= _wrap(model, node, dims, ends)
        elif mode == "constant" and value is not None and array_of(value) is None:
            changed |= _fill(model, node, dims, ends, value)
    return changed


def _positions(size: int, before: int, after: int) -> Array:
    return np.arange(-before, size + after)


def _wrap(model: ir.Model, node: ir.Node, dims: tuple[int, ...], ends: dict[int, tuple[int, int]]) -> bool:
    x, sizes = node.inputs[0], list(dims)
    for axis, (before, after) in ends.items():
        name = f"{node.outputs[0].name}/axis_{axis}"
        picked = add_constant(model, _positions(dims[axis], before, after) % dims[axis], f"{name}/indices")
        turn = new_node(node, "Gather", [x, picked], {"axis": axis}, name=f"{node.name}/{axis}")
        x = insert_before(model, node, turn, name)
        sizes[axis] += before + after
        x.type, x.shape = node.outputs[0].type, ir.Shape(sizes)
    replace_node(node, new_node(node, "Identity", [x]))
    return True


def _fill(
    model: ir.Model, node: ir.Node, dims: tuple[int, ...], ends: dict[int, tuple[int, int]], value: ir.Value
) -> bool:
    in_range: Array = np.ones((), bool)
    for axis, size in enumerate(dims):
        positions = _positions(size, *ends.get(axis, (0, 0)))
        in_range = in_range[..., None] & ((positions >= 0) & (positions < size))
    name = node.outputs[0].name
    mask = add_constant(model, in_range, f"{name}/inside")
    zeros = new_node(
        node, "Pad", [node.inputs[0], node.inputs[1], None, input_of(node, 3)], name=f"{node.name}/zeros"
    )
    padded = insert_before(model, node, zeros, f"{name}/zeros", like=node.outputs[0])
    replace_node(node, new_node(node, "Where", [mask, padded, value]))
    return True
