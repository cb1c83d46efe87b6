"""Rewrites bounds (Min, Max, Clip, Relu) to one form.

    Max(x, 0) | Clip(x, 0, none or inf)          =>   Relu(x)
    Min(Max(x, a), b) | Max(Min(x, b), a)        =>   Clip(x, a, b)     for a <= b
    Relu(x) -> Clip(a, b)                        =>   Clip(x, max(a, 0), max(b, 0))
    Clip(a, b) -> Clip(c, d)                     =>   Clip(x, max(a, c), max(c, min(b, d)))

Engines fuse Relu and Clip into the convolution before them, but not Min and Max.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    inner,
    input_of,
    new_node,
    node_pass,
    replace_node,
    scalar_of,
)

Bounds = tuple[ir.Value, float, float]


@node_pass("Clip", "Max", "Min", "Relu")
def recognize_clip(model: ir.Model, node: ir.Node) -> bool:
    """Rewrite Relu, Clip, Min and Max with constant bounds of one number."""
    bounds = _bounds(node)
    if bounds is None:
        return False
    source, low, high = bounds
    before = inner(source, node, "Clip", "Max", "Min", "Relu")
    if before is not None and (earlier := _bounds(before)) is not None:
        source, a, b = earlier
        # Clip applies the lower bound first, then the upper; the outer Clip is applied last.
        low, high = min(max(low, a), high), min(high, max(low, b))
    if low > high or (before is None and node.op_type in ("Clip", "Relu") and not _is_relu_spelled_out(node)):
        return False
    replace_node(node, _bounded(model, node, source, low, high))
    return True


def _is_relu_spelled_out(node: ir.Node) -> bool:
    bounds = _bounds(node)
    return node.op_type == "Clip" and bounds is not None and bounds[1] == 0 and bounds[2] == math.inf


def _bounds(node: ir.Node) -> Bounds | None:
    source = node.inputs[0]
    if node.op_type in ("Max", "Min") and len(node.inputs) != 2:
        return None
    if node.op_type in ("Max", "Min") and array_of(source) is not None:
        source = node.inputs[1]
        bound = scalar_of(node.inputs[0])
    else:
        bound = scalar_of(input_of(node, 1))
    if source is None or source.dtype not in _FLOATS or dims_of(source) != dims_of(node.outputs[0]):
        return None
    if node.op_type == "Relu":
        return source, 0.0, math.inf
    if node.op_type == "Clip":
        high = math.inf if input_of(node, 2) is None else scalar_of(node.inputs[2])
        low = -math.inf if input_of(node, 1) is None else bound
        return None if low is None or high is None else (source, low, high)
    if bound is None:
        return None
    return (source, bound, math.inf) if node.op_type == "Max" else (source, -math.inf, bound)


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


def _bounded(model: ir.Model, node: ir.Node, source: ir.Value, low: float, high: float) -> ir.Node:
    if low == 0 and high == math.inf:
        return new_node(node, "Relu", [source])
    dtype = source.dtype.numpy() if source.dtype is not None else np.dtype(np.float32)
    ends: list[ir.Value | None] = []
    for name, number in (("min", low), ("max", high)):
        finite = math.isfinite(number)
        ends.append(
            add_constant(model, np.array(number, dtype), f"{node.outputs[0].name}/{name}") if finite else None
        )
    return new_node(node, "Clip", [source, *(ends if ends[1] is not None else ends[:1])])
