"""Rewrites forms that engines interpret differently to one that all interpret as ONNX does.

    PRelu(x: 1x4x5x4, slope: 4)                    =>   PRelu(x, slope: 1x1x1x4)
    HardSigmoid<alpha=0.3, beta=0>(x)              =>   Clip(0.3 * x, 0, 1)
    ReduceL1, ReduceL2<noop_with_empty_axes=1>(x)  =>   Abs(x)
    ReduceLogSum<noop_with_empty_axes=1>(x)        =>   Log(x)        ReduceSumSquare: Mul(x, x)
    other reductions, the same way                 =>   Identity(x)
    MaxPool<ceil_mode=1>(x) that rounds nothing up  =>   MaxPool(x)

A slope broadcasts from the last axis on (ONNX PRelu-16). OpenVINO 2026.4 interprets a one-dimensional slope
as per-channel if the sizes match, a beta of 0 as missing (0.5), and a reduction over no axes as identity,
whereas ONNX reduces each element by itself (ONNX ReduceL1-18, noop_with_empty_axes).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    float_of,
    input_of,
    insert_before,
    int_of,
    ints_of,
    new_node,
    nodes_of,
    replace_node,
    text_of,
)

_OF_ONE_ELEMENT = {
    "ReduceL1": "Abs",
    "ReduceL2": "Abs",
    "ReduceLogSum": "Log",
    "ReduceLogSumExp": "Identity",
    "ReduceMax": "Identity",
    "ReduceMean": "Identity",
    "ReduceMin": "Identity",
    "ReduceProd": "Identity",
    "ReduceSum": "Identity",
    "ReduceSumSquare": "Mul",
}
"""Reduction -> the equivalent elementwise op for a reduction over no axes."""


def unambiguous_forms(model: ir.Model) -> bool:
    """Rewrite one-dimensional slopes, HardSigmoids with beta 0, reductions over no axes, and ceil_mode."""
    changed = False
    for _, node in nodes_of(model, "MaxPool", "AveragePool", "LpPool"):
        changed |= _ceil_mode(node)
    for _, node in nodes_of(model, "PRelu", "HardSigmoid", *_OF_ONE_ELEMENT):
        if node.op_type == "PRelu":
            changed |= _prelu(model, node)
        elif node.op_type == "HardSigmoid":
            changed |= _hard_sigmoid(model, node)
        else:
            changed |= _reduction(node)
    return changed


def _ceil_mode(node: ir.Node) -> bool:
    """Remove ceil_mode if it has no effect, also because the last window would start in the padding."""
    source, out_dims = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if not int_of(node, "ceil_mode", 0) or source is None or out_dims is None:
        return False
    if text_of(node, "auto_pad", "NOTSET") != "NOTSET":
        return False
    rank = len(source) - 2
    kernel, strides = ints_of(node, "kernel_shape"), ints_of(node, "strides", [1] * rank)
    dilations, pads = ints_of(node, "dilations", [1] * rank), ints_of(node, "pads", [0] * 2 * rank)
    for axis in range(rank):
        size = source[axis + 2] + pads[axis] + pads[axis + rank]
        if (size - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1 != out_dims[axis + 2]:
            return False
    node.attributes.pop("ceil_mode")
    return True


def _prelu(model: ir.Model, node: ir.Node) -> bool:
    slope, dims = array_of(node.inputs[1]), dims_of(node.inputs[0])
    if slope is None or dims is None or slope.ndim != 1 or slope.size == 1 or len(dims) == 1:
        return False
    full = slope.reshape((1,) * (len(dims) - 1) + slope.shape)
    node.replace_input_with(1, add_constant(model, full, f"{node.outputs[0].name}/slope"))
    return True


def _hard_sigmoid(model: ir.Model, node: ir.Node) -> bool:
    x, output = node.inputs[0], node.outputs[0]
    if x is None or x.dtype is None or float_of(node, "beta", 0.5) != 0:
        return False

    dtype = x.dtype.numpy()

    def number(value: float, name: str) -> ir.Value:
        return add_constant(model, np.array(value, dtype), f"{output.name}/{name}")

    scale = new_node(
        node, "Mul", [x, number(float_of(node, "alpha", 0.2), "alpha")], name=f"{node.name}/alpha"
    )
    scaled = insert_before(model, node, scale, f"{output.name}/scaled", like=x)
    replace_node(node, new_node(node, "Clip", [scaled, number(0, "min"), number(1, "max")]))
    return True


def _reduction(node: ir.Node) -> bool:
    x, axes = node.inputs[0], array_of(input_of(node, 1))
    if x is None or x.dtype is None or not int_of(node, "noop_with_empty_axes", 0):
        return False
    if (input_of(node, 1) is not None and (axes is None or axes.size)) or dims_of(x) is None:
        return False
    op = _OF_ONE_ELEMENT[node.op_type]
    if op == "Log" and not x.dtype.is_floating_point():
        return False  # a Log of integers is no op of ONNX
    replace_node(node, new_node(node, op, [x, x] if op == "Mul" else [x]))
    return True
