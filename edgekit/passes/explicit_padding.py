"""Padding by rule becomes padding by number, now that the shapes are known.

    Conv<auto_pad=SAME_UPPER, strides=2> of 1x3x33x33   =>   Conv<pads=[1,1,1,1], strides=2>
    MaxPool<auto_pad=VALID>                             =>   MaxPool<pads=[0,0,0,0]>

The formulas are those of ONNX's Conv: total = max(0, (ceil(in / stride) - 1) * stride + (k - 1) * dilation +
1 - in); the odd one goes to the end for SAME_UPPER, to the beginning for SAME_LOWER.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.passes.rewriting import dims_of, ints_of, nodes_of, text_of


def explicit_padding(model: ir.Model) -> bool:
    """Write out the pads of Conv, MaxPool, AveragePool and LpPool."""
    changed = False
    for _, node in nodes_of(model, "Conv", "MaxPool", "AveragePool", "LpPool"):
        rule = text_of(node, "auto_pad", "NOTSET")
        dims = dims_of(node.inputs[0])
        if rule == "NOTSET":
            continue
        kernel = _kernel(node)
        if dims is None or kernel is None:
            continue
        strides = ints_of(node, "strides", [1] * len(kernel))
        dilations = ints_of(node, "dilations", [1] * len(kernel))
        begins, ends = [], []
        for size, k, stride, dilation in zip(dims[2:], kernel, strides, dilations, strict=True):
            total = 0
            if rule != "VALID":
                total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
            small, large = total // 2, total - total // 2
            begins.append(large if rule == "SAME_LOWER" else small)
            ends.append(small if rule == "SAME_LOWER" else large)
        del node.attributes["auto_pad"]
        node.attributes["pads"] = ir.AttrInt64s("pads", [*begins, *ends])
        changed = True
    return changed


def _kernel(node: ir.Node) -> list[int] | None:
    if node.op_type != "Conv" or "kernel_shape" in node.attributes:
        return ints_of(node, "kernel_shape")
    weight = dims_of(node.inputs[1])
    return list(weight[2:]) if weight is not None else None
