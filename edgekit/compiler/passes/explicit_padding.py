"""Replaces auto_pad by explicit pads, using the known shapes.

    Conv<auto_pad=SAME_UPPER, strides=2> of 1x3x33x33    =>   Conv<pads=[1,1,1,1], strides=2>
    MaxPool<auto_pad=VALID>                              =>   MaxPool<pads=[0,0,0,0]>
    ConvTranspose<auto_pad=SAME_UPPER, output_padding>   =>   ConvTranspose<pads, output_padding>
    ConvTranspose<auto_pad=SAME_UPPER, output_shape>     =>   ConvTranspose<pads>
    AveragePool<pads=1, count_include_pad=1, ceil_mode=1>   =>   Pad(1 with 0) -> AveragePool<ceil_mode=1>

The formulas are those of ONNX's Conv: total = max(0, (ceil(in / stride) - 1) * stride + (k - 1) * dilation +
1 - in); the odd one goes to the end for SAME_UPPER, to the beginning for SAME_LOWER; and ConvTranspose's:
total = stride * (in - 1) + output_padding + (k - 1) * dilation + 1 - out.

An average with count_include_pad counts the padding, but not elements beyond it due to ceil_mode. OpenVINO
2026.4 counts both, and swaps SAME_UPPER and SAME_LOWER of a ConvTranspose with output_shape.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    dims_of,
    insert_before,
    int_of,
    ints_of,
    new_node,
    nodes_of,
    text_of,
)


def explicit_padding(model: ir.Model) -> bool:
    """Write out the pads of Conv, ConvTranspose, MaxPool, AveragePool and LpPool."""
    changed = False
    for _, node in nodes_of(model, "Conv", "MaxPool", "AveragePool", "LpPool"):
        changed |= _by_rule(node)
    for _, node in nodes_of(model, "ConvTranspose"):
        changed |= _by_output_size(node)
    for _, node in nodes_of(model, "AveragePool"):
        changed |= _counted_and_hanging_over(model, node)
    return changed


def _by_rule(node: ir.Node) -> bool:
    rule = text_of(node, "auto_pad", "NOTSET")
    dims = dims_of(node.inputs[0])
    kernel = _kernel(node)
    if rule == "NOTSET" or dims is None or kernel is None:
        return False
    strides = ints_of(node, "strides", [1] * len(kernel))
    dilations = ints_of(node, "dilations", [1] * len(kernel))
    totals = [0] * len(kernel)
    if rule != "VALID":
        totals = [
            max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
            for size, k, stride, dilation in zip(dims[2:], kernel, strides, dilations, strict=True)
        ]
    _set_pads(node, rule, totals)
    return True


def _by_output_size(node: ir.Node) -> bool:
    rule = text_of(node, "auto_pad", "NOTSET")
    dims, weight, out = dims_of(node.inputs[0]), dims_of(node.inputs[1]), dims_of(node.outputs[0])
    if rule not in ("SAME_UPPER", "SAME_LOWER") or dims is None or weight is None or out is None:
        return False
    kernel, axes = weight[2:], range(len(dims) - 2)
    strides = ints_of(node, "strides", [1] * len(kernel))
    dilations = ints_of(node, "dilations", [1] * len(kernel))
    more = ints_of(node, "output_padding", [0] * len(kernel))
    totals = [
        strides[k] * (dims[2 + k] - 1) + more[k] + (kernel[k] - 1) * dilations[k] + 1 - out[2 + k]
        for k in axes
    ]
    if min(totals) < 0:
        return False  # larger than what the kernel reaches: engines differ in where the rest goes
    node.attributes.pop("output_shape", None)
    _set_pads(node, rule, totals)
    return True


def _set_pads(node: ir.Node, rule: str, totals: list[int]) -> None:
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    begins, ends = (large, small) if rule == "SAME_LOWER" else (small, large)
    del node.attributes["auto_pad"]
    node.attributes["pads"] = ir.AttrInt64s("pads", [*begins, *ends])


def _counted_and_hanging_over(model: ir.Model, node: ir.Node) -> bool:
    source, dims, out_dims = node.inputs[0], dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if source is None or dims is None or out_dims is None or text_of(node, "auto_pad", "NOTSET") != "NOTSET":
        return False
    kernel = ints_of(node, "kernel_shape")
    pads = ints_of(node, "pads", [0] * 2 * len(kernel))
    if not (int_of(node, "ceil_mode", 0) and int_of(node, "count_include_pad", 0) and any(pads)):
        return False
    strides = ints_of(node, "strides", [1] * len(kernel))
    dilations = ints_of(node, "dilations", [1] * len(kernel))
    hangs_over = False
    for axis, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        padded = dims[2 + axis] + pads[axis] + pads[len(kernel) + axis]
        reach = (k - 1) * dilation + 1
        windows = -(-(padded - reach) // stride) + 1
        windows -= (windows - 1) * stride >= padded
        if windows != out_dims[2 + axis]:
            return False  # a window that would start in the padding is left out; after a Pad it would not be
        hangs_over |= (windows - 1) * stride + reach > padded
    if not hangs_over:
        return False
    amounts = np.array([0, 0, *pads[: len(kernel)], 0, 0, *pads[len(kernel) :]], np.int64)
    name = node.outputs[0].name
    pad = new_node(
        node, "Pad", [source, add_constant(model, amounts, f"{name}/pads")], name=f"{node.name}/pad"
    )
    padded_image = insert_before(model, node, pad, f"{name}/padded", like=source)
    rank = len(dims)
    padded_image.shape = ir.Shape(
        [size + int(amounts[k]) + int(amounts[rank + k]) for k, size in enumerate(dims)]
    )
    node.replace_input_with(0, padded_image)
    del node.attributes["pads"], node.attributes["count_include_pad"]
    return True


def _kernel(node: ir.Node) -> list[int] | None:
    if node.op_type != "Conv" or "kernel_shape" in node.attributes:
        return ints_of(node, "kernel_shape")
    weight = dims_of(node.inputs[1])
    return list(weight[2:]) if weight is not None else None
