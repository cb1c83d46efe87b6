"""Folds a Pad into the Conv or pooling after it.

    Pad(1,1 with 0) -> Conv<pads=0>                         =>   Conv<pads=1>
    Pad(1,1 with 0) -> AveragePool<pads=0>                  =>   AveragePool<pads=1, count_include_pad=1>
    Pad(1,1 with -inf) -> MaxPool<pads=0>                   =>   MaxPool<pads=1>
    Relu -> Pad(1,1 with 0) -> MaxPool<pads=0>              =>   Relu -> MaxPool<pads=1>: no value is below 0

Only if just the spatial axes are padded and nothing is cropped; pools only if each window contains an element
of the input (pads below the kernel's size), without ceil_mode.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    array_of,
    inner,
    input_of,
    int_of,
    ints_of,
    node_pass,
    producer_of,
    scalar_of,
    text_of,
)


@node_pass("Conv", "AveragePool", "MaxPool")
def fold_pad(model: ir.Model, node: ir.Node) -> bool:
    """Fold Pads; runs after auto_pad is replaced by explicit pads."""
    pad = inner(node.inputs[0], node, "Pad")
    if (
        pad is None
        or text_of(pad, "mode", "constant") != "constant"
        or text_of(node, "auto_pad", "NOTSET") != "NOTSET"
    ):
        return False
    amounts = _amounts(pad)
    if amounts is None:
        return False
    ndim = len(amounts) // 2
    spatial = amounts[2:ndim] + amounts[ndim + 2 :]
    if min(amounts) < 0 or any(amounts[:2]) or any(amounts[ndim : ndim + 2]):
        return False
    pads = ints_of(node, "pads", [0] * len(spatial))
    value = 0.0 if input_of(pad, 2) is None else scalar_of(pad.inputs[2])
    if node.op_type == "Conv":
        fits = value == 0.0
    else:
        fits = _fits_pool(node, pad, spatial, pads, value)
    if not fits:
        return False
    node.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(spatial, pads, strict=True)])
    if node.op_type == "AveragePool":
        node.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
    node.replace_input_with(0, pad.inputs[0])
    assert pad.graph is not None
    pad.graph.remove(pad, safe=True)
    return True


def _amounts(pad: ir.Node) -> list[int] | None:
    """Begin and end of every axis, also if the Pad has an axes input."""
    pads, axes = array_of(input_of(pad, 1)), array_of(input_of(pad, 3))
    shape = pad.inputs[0].shape if pad.inputs[0] is not None else None
    if pads is None or shape is None or (input_of(pad, 3) is not None and axes is None):
        return None
    rank = len(shape)
    if axes is None:
        return [int(p) for p in pads] if len(pads) == 2 * rank else None
    amounts = [0] * (2 * rank)
    for k, axis in enumerate(axes):
        amounts[int(axis) % rank] = int(pads[k])
        amounts[rank + int(axis) % rank] = int(pads[len(axes) + k])
    return amounts


def _fits_pool(node: ir.Node, pad: ir.Node, spatial: list[int], pads: list[int], value: float | None) -> bool:
    kernel = ints_of(node, "kernel_shape")
    if int_of(node, "ceil_mode", 0) or any(
        p + q >= k for p, q, k in zip(spatial, pads, kernel * 2, strict=True)
    ):
        return False
    if node.op_type == "AveragePool":
        # The Pad's elements count in the mean; the pool's own padding counts only with count_include_pad.
        return value == 0.0 and (not any(pads) or int_of(node, "count_include_pad", 0) == 1)
    if len(node.outputs) > 1:
        return False  # indices count the padded input
    return value == -math.inf or (value == 0.0 and _not_negative(pad.inputs[0]))


def _not_negative(value: ir.Value | None) -> bool:
    node = producer_of(value, "Relu", "Sigmoid", "HardSigmoid", "Softmax", "Clip")
    if node is None or node.op_type != "Clip":
        return node is not None
    low = scalar_of(input_of(node, 1))
    return low is not None and low >= 0
