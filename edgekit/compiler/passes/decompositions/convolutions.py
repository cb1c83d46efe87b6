"""Decomposes ConvTranspose into a Conv over the input with zeros between its elements, and 3D convolutions
into 2D convolutions."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes

KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@decomposes("Conv")
def conv_3d(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose a 3D Conv into a 2D Conv for each slice of the kernel, their sum, and the bias.

    The number of products is the same; the slices of a volume are batched.
    """
    x, w, out_dims = dims_of(node.inputs[0]), dims_of(node.inputs[1]), dims_of(node.outputs[0])
    kind = node.outputs[0].dtype
    if (
        x is None
        or w is None
        or out_dims is None
        or len(x) != 5
        or kind not in KINDS
        or 0 in (*x, *w, *out_dims)
    ):
        return None
    if text_of(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    strides, dilations = ints_of(node, "strides", [1] * 3), ints_of(node, "dilations", [1] * 3)
    pads = ints_of(node, "pads", [0] * 6)
    tape, (batch, channels), out = Tape(node), x[:2], out_dims[2]
    images = tape("Transpose", "i0", perm=[0, 2, 1, 3, 4])
    if pads[0] or pads[3]:
        images = tape("Pad", images, np.array([0, pads[0], 0, 0, 0, 0, pads[3], 0, 0, 0], np.int64))
    total = []
    for tap in range(w[2]):
        first = tap * dilations[0]
        last = first + (out - 1) * strides[0] + 1
        met = tape.part(images, 1, first, last, strides[0])
        flat = tape.reshape(met, (batch * out, channels, *x[3:]))
        kernel = tape("Gather", "i1", np.array(tap, np.int64), axis=2)
        # The bias is added once.
        bias = ["i2"] if tap == 0 and input_of(node, 2) is not None else []
        plane = tape(
            "Conv", flat, kernel, *bias, strides=strides[1:], dilations=dilations[1:],
            group=int_of(node, "group", 1), pads=[*pads[1:3], *pads[4:]],
        )  # fmt: skip
        total.append(plane)
    stacked = tape.reshape(tape.total(total), (batch, out, out_dims[1], *out_dims[3:]))
    return tape.body(tape("Transpose", stacked, perm=[0, 2, 1, 3, 4]))


FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@decomposes("ConvTranspose")
def conv_transpose(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ConvTranspose: insert zeros between the elements, pad by dilation * (kernel - 1) - pads, and
    convolve with the transposed kernel.

    ONNX ConvTranspose: output = stride * (input - 1) + output_padding + dilation * (kernel - 1) + 1 - pads.
    """
    x, w, y = dims_of(node.inputs[0]), dims_of(node.inputs[1]), dims_of(node.outputs[0])
    if x is None or w is None or y is None or node.outputs[0].dtype not in FLOATS or 0 in (*x, *w, *y):
        return None
    axes = len(x) - 2
    kernel, groups = w[2:], int_of(node, "group", 1)
    strides, dilations = (ints_of(node, name, [1] * axes) for name in ("strides", "dilations"))
    pads, added = ints_of(node, "pads", [0] * 2 * axes), ints_of(node, "output_padding", [0] * axes)
    tape, name, sizes = Tape(node), "i0", list(x)
    reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    rule = text_of(node, "auto_pad", "NOTSET")
    if rule == "VALID":
        pads = [0] * 2 * axes
    elif rule != "NOTSET" or "output_shape" in node.attributes:
        # The specification says what is cut off in all; the odd one is at the end for SAME_UPPER.
        cut = [strides[a] * (x[a + 2] - 1) + added[a] + reach[a] + 1 - y[a + 2] for a in range(axes)]
        begins = [total // 2 if rule == "SAME_UPPER" else total - total // 2 for total in cut]
        pads = [*begins, *(total - begin for total, begin in zip(cut, begins, strict=True))]
    for axis in range(axes):
        name = _spaced(tape, name, sizes, axis + 2, strides[axis])
    before = [reach[a] - pads[a] for a in range(axes)]
    after = [reach[a] - pads[a + axes] + added[a] for a in range(axes)]
    for axis in range(axes):
        size = sizes[axis + 2]
        if min(before[axis], after[axis]) < 0:
            first, last = max(-before[axis], 0), size - max(-after[axis], 0)
            name = tape.part(name, axis + 2, first, last)
            sizes[axis + 2] = last - first
    ends = [max(n, 0) for n in (*before, *after)]
    out_sizes = [sizes[a + 2] + ends[a] + ends[a + axes] - reach[a] for a in range(axes)]
    if out_sizes != list(y[2:]):
        return None
    bias = ["i2"] if input_of(node, 2) is not None else []
    weights = _transposed_kernel(tape, w, groups)
    if array_of(node.inputs[1]) is None:  # kernels that take computed weights take no dilations
        taps = [groups * w[1], w[0] // groups, *kernel]
        for axis in range(axes):
            weights = _spaced(tape, weights, taps, axis + 2, dilations[axis])
        dilations = [1] * axes
    return tape.body(tape("Conv", name, weights, *bias, dilations=dilations, group=groups, pads=ends))


def _spaced(tape: Tape, name: str, sizes: list[int], axis: int, stride: int) -> str:
    """Insert ``stride - 1`` zeros between the elements along one axis; update ``sizes``."""
    size = sizes[axis]
    if stride == 1 or size == 1:
        return name
    outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
    apart = tape.reshape(name, (outer, size, 1, inner))
    filled = tape("Pad", apart, np.array([0, 0, 0, 0, 0, 0, stride - 1, 0], np.int64))
    line = tape.part(tape.reshape(filled, (outer, size * stride, inner)), 1, 0, (size - 1) * stride + 1)
    sizes[axis] = (size - 1) * stride + 1
    return tape.reshape(line, sizes)


def _transposed_kernel(tape: Tape, w: tuple[int, ...], groups: int) -> str:
    """Return C x M/groups x kernel as M x C/groups x kernel, each kernel reversed along all axes."""
    taps = prod(w[2:])
    flat = tape.reshape("i1", (groups, w[0] // groups, w[1], taps))
    swapped = tape("Transpose", flat, perm=[0, 2, 1, 3])
    if taps > 1:
        backward = [np.array([number], np.int64) for number in (-1, -(taps + 1), 3, -1)]
        swapped = tape("Slice", swapped, *backward)
    return tape.reshape(swapped, (groups * w[1], w[0] // groups, *w[2:]))
