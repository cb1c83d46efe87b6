"""Pooling windows over pixels only, where jax2onnx (0.17) writes them over all axes.

It makes of a pool of 2 x 2 pixels in NHWC a MaxPool, or a Conv by ones, over the four axes N, H, W and C
behind two new ones. ONNX Runtime pools and convolves over three axes at most, so that nothing runs the file.
The axes of which the window takes one element each become rows:

    x 1x1xNxHxWxC -> MaxPool<1, 2, 2, 1>
        =>  Transpose -> Reshape (NC)x1xHxW -> MaxPool<2, 2> -> Reshape -> Transpose
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

NEW_AXES = 2
"""Those that stand for the batch and the channels of the pool."""


def pool_two_axes(proto: Any) -> None:
    """Rewrite such nodes of an ``onnx.ModelProto``, in place, if the shapes are static."""
    import onnx

    graph = proto.graph
    if not any(_window(node, graph) for node in graph.node):
        return
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    dims = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in [*inferred.value_info, *inferred.input]
    }
    nodes = []
    for node in graph.node:
        window, shape = _window(node, graph), dims.get(node.input[0] if node.input else "", [])
        written = _written(node, window, shape, graph) if window and all(shape) else None
        nodes += written or [node]
    del graph.node[:]
    graph.node.extend(nodes)


def _window(node: Any, graph: Any) -> list[int]:
    """Return the window of a pool over more than three axes; empty for any other node."""
    attributes = _ints(node)
    if node.op_type == "MaxPool":
        window = attributes.get("kernel_shape", [])
    elif node.op_type == "Conv" and attributes.get("group", [1]) == [1]:
        kernel = next((tensor for tensor in graph.initializer if tensor.name == node.input[1]), None)
        window = (
            list(kernel.dims)[NEW_AXES:]
            if kernel is not None and list(kernel.dims)[:NEW_AXES] == [1, 1]
            else []
        )
    else:
        return []
    return window if len(window) > 3 and not node.domain else []


def _ints(node: Any) -> dict[str, list[int]]:
    return {attribute.name: list(attribute.ints) or [attribute.i] for attribute in node.attribute}


def _written(node: Any, window: list[int], shape: list[int], graph: Any) -> list[Any] | None:
    from onnx import helper, numpy_helper

    ints = _ints(node)
    rank = len(window)
    strides = ints.get("strides", [1] * rank)
    dilations = ints.get("dilations", [1] * rank)
    pads = ints.get("pads", [0] * 2 * rank)
    plain = all(
        item in ("kernel_shape", "strides", "dilations", "pads", "group", "ceil_mode") for item in ints
    )
    if not plain or ints.get("ceil_mode", [0]) != [0] or len(shape) != rank + NEW_AXES:
        return None
    pooled = [a for a in range(rank) if window[a] != 1 or strides[a] != 1 or pads[a] or pads[a + rank]]
    rows = [a for a in range(rank) if a not in pooled]
    if len(pooled) > 3 or shape[:NEW_AXES] != [1, 1]:
        return None
    order = [0, 1, *(a + NEW_AXES for a in [*rows, *pooled])]
    ends = [
        (shape[a + NEW_AXES] + pads[a] + pads[a + rank] - dilations[a] * (window[a] - 1) - 1) // strides[a]
        + 1
        for a in pooled
    ]
    row_sizes = [shape[a + NEW_AXES] for a in rows]
    name = node.output[0]
    flat = [math.prod(row_sizes), 1, *(shape[a + NEW_AXES] for a in pooled)]
    attributes: dict[str, Any] = {
        "strides": [strides[a] for a in pooled],
        "dilations": [dilations[a] for a in pooled],
        "pads": [pads[a] for a in pooled] + [pads[a + rank] for a in pooled],
    }
    inputs = [f"{name}/rows"]
    if node.op_type == "MaxPool":
        attributes["kernel_shape"] = [window[a] for a in pooled]
    else:
        kernel = numpy_helper.to_array(next(item for item in graph.initializer if item.name == node.input[1]))
        small = kernel.reshape(1, 1, *(window[a] for a in pooled))
        graph.initializer.append(numpy_helper.from_array(small, f"{name}/window"))
        inputs.append(f"{name}/window")
    for suffix, numbers in (("flat", flat), ("apart", [1, 1, *row_sizes, *ends])):
        graph.initializer.append(numpy_helper.from_array(np.array(numbers, np.int64), f"{name}/{suffix}"))
    back = [order.index(axis) for axis in range(len(order))]
    return [
        helper.make_node("Transpose", [node.input[0]], [f"{name}/last"], perm=order),
        helper.make_node("Reshape", [f"{name}/last", f"{name}/flat"], [f"{name}/rows"]),
        helper.make_node(node.op_type, inputs, [f"{name}/pooled"], **attributes),
        helper.make_node("Reshape", [f"{name}/pooled", f"{name}/apart"], [f"{name}/axes"]),
        helper.make_node("Transpose", [f"{name}/axes"], [name], perm=back),
    ]
