"""Folds the Focus stem (YOLOv5, YOLOX) into the convolution after it.

    x -> 4 Slices: every second row and column, from (0 or 1, 0 or 1) -> Concat of channels -> Conv k, stride
    s
                                                                =>   x -> Conv 2k, stride 2s, pads 2p

The pixel (2i + a, 2j + b) of channel c is pixel (i, j) of channel (group of (a, b), c), so each weight of the
small kernel has one position in the large one. The same products in another order, with nine nodes less and
no copy of the input.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    add_constant,
    array_of,
    dims_of,
    inner,
    input_of,
    int_of,
    ints_of,
    node_pass,
    producer_of,
    remove_unread,
    text_of,
)

Offsets = tuple[int, int]


@node_pass("Conv")
def fold_focus(model: ir.Model, conv: ir.Node) -> bool:
    """Fold if only the Conv reads the Concat, undilated, with one group and explicit pads."""
    concat = inner(conv.inputs[0], conv, "Concat")
    weight = array_of(conv.inputs[1])
    if concat is None or weight is None or weight.ndim != 4 or len(concat.inputs) != 4:
        return False
    if int_of(concat, "axis", 0) not in (1, -3) or text_of(conv, "auto_pad", "NOTSET") != "NOTSET":
        return False
    if int_of(conv, "group", 1) != 1 or any(d != 1 for d in ints_of(conv, "dilations")):
        return False
    parts = [_offsets(value) for value in concat.inputs]
    slices = [part for part in parts if part is not None]
    if len(slices) != 4 or len({id(source) for source, _ in slices}) != 1:
        return False
    if {offsets for _, offsets in slices} != {(0, 0), (0, 1), (1, 0), (1, 1)}:
        return False
    source = slices[0][0]
    dims = dims_of(source)
    if dims is None or len(dims) != 4 or dims[2] % 2 or dims[3] % 2:
        return False
    out, _, height, width = weight.shape
    channels = dims[1]
    large = np.zeros((out, channels, 2 * height, 2 * width), weight.dtype)
    for index, (_, (row, column)) in enumerate(slices):
        large[:, :, row::2, column::2] = weight[:, index * channels : (index + 1) * channels]
    conv.replace_input_with(0, source)
    remove_unread(concat)
    conv.replace_input_with(1, add_constant(model, large, f"{conv.name}/weight"))
    conv.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", [2 * height, 2 * width])
    conv.attributes["strides"] = ir.AttrInt64s("strides", [2 * s for s in ints_of(conv, "strides", (1, 1))])
    conv.attributes["pads"] = ir.AttrInt64s("pads", [2 * p for p in ints_of(conv, "pads", (0, 0, 0, 0))])
    return True


def _offsets(value: ir.Value | None) -> tuple[ir.Value, Offsets] | None:
    """Return (x, (first row, first column)) if the value is every second row and column of x."""
    starts = {2: 0, 3: 0}
    steps = {2: 1, 3: 1}
    x = value
    while (node := producer_of(x, "Slice")) is not None and max(steps.values()) * min(steps.values()) < 4:
        dims = dims_of(node.inputs[0])
        arrays = [array_of(input_of(node, k)) for k in (1, 2, 3, 4)]
        if dims is None or len(dims) != 4 or any(array is None for array in arrays):
            return None
        for start, end, axis, step in zip(*(np.asarray(array).tolist() for array in arrays), strict=True):
            axis %= 4
            if axis not in steps or steps[axis] != 1 or step != 2 or start not in (0, 1) or end < dims[axis]:
                return None
            starts[axis], steps[axis] = start, step
        x = node.inputs[0]
    if x is None or steps != {2: 2, 3: 2}:
        return None
    return x, (starts[2], starts[3])
