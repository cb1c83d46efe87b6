"""Decomposes Col2Im, MaxUnpool and EyeLike into Gather and Scatter."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, ints_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes

MOST_PLACES = 2**22
"""Most elements of Col2Im's index table: 16 MB."""


@decomposes("Col2Im")
def col2im(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Col2Im: each pixel is the sum of the column elements at its position; their indices are
    constant.

    in: N x (C * block) x columns, with one zero appended -> Gather -> N x C x overlaps x pixels -> sum
    """
    dims = dims_of(node.inputs[0])
    image_shape, block_shape = array_of(input_of(node, 1)), array_of(input_of(node, 2))
    if dims is None or image_shape is None or block_shape is None:
        return None
    image, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    axes = len(image)
    strides, dilations = ints_of(node, "strides", [1] * axes), ints_of(node, "dilations", [1] * axes)
    pads = ints_of(node, "pads", [0] * 2 * axes)
    columns = [
        (image[a] + pads[a] + pads[a + axes] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a in range(axes)
    ]
    batch, channels, count = dims[0], dims[1] // prod(block), prod(columns)
    if count != dims[2]:
        return None
    falls: list[list[int]] = [[] for _ in range(prod(image))]
    for position, offset in enumerate(product(*map(range, block))):
        for number, column in enumerate(product(*map(range, columns))):
            pixel = [column[a] * strides[a] - pads[a] + offset[a] * dilations[a] for a in range(axes)]
            if all(0 <= pixel[a] < image[a] for a in range(axes)):
                falls[int(np.ravel_multi_index(pixel, image))].append(position * count + number)
    longest = max(map(len, falls))
    if longest * len(falls) > MOST_PLACES:
        return None
    nothing = prod(block) * count
    table = np.array([[*cells, *[nothing] * (longest - len(cells))] for cells in falls], np.int64).T
    tape = Tape(node)
    flat = tape.reshape("i0", (batch, channels, nothing))
    ended = tape("Pad", flat, np.array([0, 0, 0, 0, 0, 1], np.int64))
    read = tape("Gather", ended, table, axis=2)
    summed = tape("ReduceSum", read, np.array([2], np.int64), keepdims=0)
    return tape.body(tape.reshape(summed, (batch, channels, *image)))


@decomposes("MaxUnpool")
def max_unpool(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose MaxUnpool into zeros with the values at MaxPool's indices into the flat output."""
    out_dims = dims_of(node.outputs[0])
    x = node.inputs[0]
    if out_dims is None or x is None or x.dtype is None or input_of(node, 2) is not None:
        return None  # with output_shape the indices are those of another shape
    tape = Tape(node)
    values, indices = tape.reshape("i0", (-1,)), tape.reshape("i1", (-1,))
    zeros = np.zeros(prod(out_dims), x.dtype.numpy())
    return tape.body(tape.reshape(tape("ScatterElements", zeros, indices, values, axis=0), out_dims))


@decomposes("EyeLike")
def eye_like(node: ir.Node) -> onnx.GraphProto | None:
    """Replace EyeLike by a constant."""
    out_dims, dtype = dims_of(node.outputs[0]), node.outputs[0].dtype
    if out_dims is None or dtype is None or 0 in out_dims:
        return None
    tape = Tape(node)
    return tape.body(tape.constant(np.eye(out_dims[0], out_dims[1], int_of(node, "k", 0), dtype.numpy())))
