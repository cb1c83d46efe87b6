"""Decomposes 3D convolutions into 2D convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, input_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape

KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


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
