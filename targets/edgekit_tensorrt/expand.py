"""Operators that came after opset 20, written with older ones: the floor's parser reads no others.

    Attention(Q, K, V, mask)   =>  Softmax(Q x K' * scale + mask) x V
    GroupNormalization(x)      =>  Reshape -> InstanceNormalization -> Reshape -> Mul -> Add
    RMSNormalization(x)        =>  x / Sqrt(ReduceMean(x * x) + epsilon) * scale

NVIDIA's compiler of 2026 has a kernel for Attention, but not for every shape: it takes PP-OCRv4's recognition
in float16 and refuses it in float32. It fuses the three nodes by itself where it has one.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgekit.passes.rewriting import (
    add_constant,
    dims_of,
    float_of,
    int_of,
    new_node,
    nodes_of,
    put_before,
    replace_node,
)


def expand_newer(model: ir.Model) -> None:
    """Rewrite, in place, each node of these operators that has a form here; the others stay."""
    for _, node in nodes_of(model, "Attention"):
        if _is_plain(node):
            _attention(model, node)
    for _, node in nodes_of(model, "GroupNormalization"):
        _group_normalization(model, node)
    for _, node in nodes_of(model, "RMSNormalization"):
        _rms_normalization(model, node)


def _constant(model: ir.Model, node: ir.Node, number: float, name: str) -> ir.Value:
    dtype = node.outputs[0].dtype
    assert dtype is not None
    return add_constant(model, np.array(number, dtype.numpy()), f"{node.outputs[0].name}/{name}")


def _is_plain(node: ir.Node) -> bool:
    """Four dimensions, as many heads in K and V as in Q, one answer, and at most an added mask."""
    q, k = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    return (
        q is not None
        and k is not None
        and len(q) == 4
        and q[1] == k[1]
        and not any(node.inputs[4:])
        and all(not value.uses() and not value.is_graph_output() for value in node.outputs[1:])
        and not int_of(node, "is_causal", 0)
        and not float_of(node, "softcap", 0.0)
        and (mask is None or mask.dtype == node.outputs[0].dtype)
    )


def _attention(model: ir.Model, node: ir.Node) -> None:
    q, k, v = node.inputs[:3]
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    q_dims, k_dims = dims_of(q), dims_of(k)
    assert q_dims is not None
    assert k_dims is not None
    turned = (*k_dims[:2], k_dims[3], k_dims[2])
    scores = (*q_dims[:3], k_dims[2])
    keys = put_before(model, node, "Transpose", [k], turned, "keys", perm=[0, 1, 3, 2])
    # The scale on Q, not on the product: a product of float16 numbers may leave its range.
    scale = _constant(model, node, float_of(node, "scale", 1 / math.sqrt(q_dims[3])), "scale")
    scaled = put_before(model, node, "Mul", [q, scale], q_dims, "scaled")
    weights = put_before(model, node, "MatMul", [scaled, keys], scores, "scores")
    if mask is not None:
        weights = put_before(model, node, "Add", [weights, mask], scores, "masked")
    weights = put_before(model, node, "Softmax", [weights], scores, "weights", axis=-1)
    replace_node(node, new_node(node, "MatMul", [weights, v]))


def _group_normalization(model: ir.Model, node: ir.Node) -> None:
    x, scale, bias = node.inputs
    dims = dims_of(x)
    assert dims is not None
    dtype = node.outputs[0].dtype
    assert dtype is not None
    groups, name = int_of(node, "num_groups", 1), node.outputs[0].name
    grouped = (dims[0], groups, math.prod(dims[1:]) // groups)
    into = add_constant(model, np.array(grouped, np.int64), f"{name}/grouped")
    back = add_constant(model, np.array(dims, np.int64), f"{name}/dims")
    ones = add_constant(model, np.ones(groups, dtype.numpy()), f"{name}/ones")
    zeros = add_constant(model, np.zeros(groups, dtype.numpy()), f"{name}/zeros")
    flat = put_before(model, node, "Reshape", [x, into], grouped, "flat")
    epsilon = float_of(node, "epsilon", 1e-5)
    normal = put_before(
        model, node, "InstanceNormalization", [flat, ones, zeros], grouped, "normal", epsilon=epsilon
    )
    whole = put_before(model, node, "Reshape", [normal, back], dims, "whole")
    per_channel = (dims[1], *[1] * (len(dims) - 2))
    shape = add_constant(model, np.array(per_channel, np.int64), f"{name}/channel")
    by_channel = [
        put_before(model, node, "Reshape", [value, shape], per_channel, part)
        for value, part in ((scale, "scale"), (bias, "bias"))
    ]
    scaled = put_before(model, node, "Mul", [whole, by_channel[0]], dims, "scaled")
    replace_node(node, new_node(node, "Add", [scaled, by_channel[1]]))


def _rms_normalization(model: ir.Model, node: ir.Node) -> None:
    x, scale = node.inputs
    dims = dims_of(x)
    assert dims is not None
    axis = int_of(node, "axis", -1) % len(dims)
    kept = (*dims[:axis], *[1] * (len(dims) - axis))
    name = node.outputs[0].name
    axes = add_constant(model, np.arange(axis, len(dims), dtype=np.int64), f"{name}/axes")
    epsilon = _constant(model, node, float_of(node, "epsilon", 1e-5), "epsilon")
    squared = put_before(model, node, "Mul", [x, x], dims, "squared")
    mean = put_before(model, node, "ReduceMean", [squared, axes], kept, "mean", keepdims=1)
    raised = put_before(model, node, "Add", [mean, epsilon], kept, "raised")
    root = put_before(model, node, "Sqrt", [raised], kept, "root")
    normal = put_before(model, node, "Div", [x, root], dims, "normal")
    replace_node(node, new_node(node, "Mul", [normal, scale]))
