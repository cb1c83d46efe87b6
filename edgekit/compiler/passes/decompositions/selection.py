"""Decomposes ops that select: Hardmax, ArgMax of a vector, Compress, OneHot, ReverseSequence, Pad by a
computed value, Slice (into one for each axis, of neighbours), Scatter with a reduction; and ops that place:
Col2Im, MaxUnpool and EyeLike."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.tensor_spec import Array

MOST_COMPARISONS = 2**22
"""Most places times updates of a Scatter with a reduction."""


@decomposes("Hardmax")
def hardmax(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Hardmax into OneHot(ArgMax): the first of equal numbers, as ONNX specifies."""
    dims, kind = dims_of(node.inputs[0]), node.outputs[0].dtype
    if dims is None or kind is None or 0 in dims:
        return None
    tape, axis = Tape(node), int_of(node, "axis", -1) % len(dims)
    numbers = [tape.reshape("i0", (1, *dims))] if len(dims) == 1 else ["i0"]
    along = axis + (len(dims) == 1)
    best = tape("ArgMax", *numbers, axis=along, keepdims=1)
    places = np.arange(dims[axis]).reshape([-1 if a == along else 1 for a in range(max(len(dims), 2))])
    hot = tape("Cast", tape("Equal", best, places.astype(np.int64)), to=int(kind))
    return tape.body(tape.reshape(hot, dims) if len(dims) == 1 else hot)


@decomposes("ArgMax", "ArgMin")
def arg_extreme(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ArgMax and ArgMin of a vector into those of a matrix with one row."""
    dims, out = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if dims is None or out is None or len(dims) != 1:
        return None
    tape, last = Tape(node), int_of(node, "select_last_index", 0)
    row = tape.reshape("i0", (1, *dims))
    return tape.body(tape.reshape(tape(node.op_type, row, axis=1, keepdims=0, select_last_index=last), out))


@decomposes("Compress")
def compress(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Compress by a constant condition into Gather of the kept places."""
    dims, condition = dims_of(node.inputs[0]), array_of(input_of(node, 1))
    if dims is None or condition is None:
        return None
    tape, indices = Tape(node), np.flatnonzero(condition)
    if "axis" in node.attributes:
        return tape.body(tape("Gather", "i0", indices, axis=int_of(node, "axis", 0)))
    return tape.body(tape("Gather", tape.reshape("i0", (prod(dims),)), indices, axis=0))


@decomposes("OneHot")
def one_hot(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose OneHot of computed values into Where(Equal(indices, 0 1 2 ...), on, off).

    An index counts from the end if it is negative; one beyond the depth is nowhere (ONNX OneHot-28).
    """
    dims, out = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if dims is None or out is None:
        return None
    tape, axis = Tape(node), int_of(node, "axis", -1) % len(out)
    depth = np.array(out[axis], np.int64)
    places = np.arange(out[axis]).reshape([-1 if a == axis else 1 for a in range(len(out))])
    indices = tape("Cast", "i0", to=int(ir.DataType.INT64))
    indices = tape.reshape(indices, (*dims[:axis], 1, *dims[axis:]))
    past = tape("Less", indices, np.array(0, np.int64))
    indices = tape("Where", past, tape("Add", indices, depth), indices)
    off, on = (tape.part("i2", 0, k, k + 1) for k in range(2))
    return tape.body(tape("Where", tape("Equal", indices, places.astype(np.int64)), on, off))


@decomposes("ReverseSequence")
def reverse_sequence(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ReverseSequence: GatherElements at ``length - 1 - t`` for t < length, then at t."""
    dims = dims_of(node.inputs[0])
    time, batch = int_of(node, "time_axis", 0), int_of(node, "batch_axis", 1)
    if dims is None or 0 in dims:
        return None
    tape = Tape(node)
    steps = np.arange(dims[time], dtype=np.int64).reshape([-1 if a == time else 1 for a in range(len(dims))])
    lengths = tape.reshape("i1", [dims[batch] if a == batch else 1 for a in range(len(dims))])
    last = tape("Sub", lengths, np.array(1, np.int64))
    order = tape("Where", tape("Less", steps, lengths), tape("Sub", last, steps), steps)
    return tape.body(tape("GatherElements", "i0", tape("Expand", order, np.array(dims, np.int64)), axis=time))


@decomposes("Pad")
def pad(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Pad by a computed value: pad by zeros, then apply Where with a constant mask."""
    dims, out, pads = dims_of(node.inputs[0]), dims_of(node.outputs[0]), array_of(input_of(node, 1))
    value, axes = input_of(node, 2), array_of(input_of(node, 3))
    if dims is None or out is None or pads is None or value is None or array_of(value) is not None:
        return None
    if text_of(node, "mode", "constant") != "constant" or 0 in out:
        return None
    if input_of(node, 3) is not None and axes is None:
        return None
    padded_axes = [int(a) % len(dims) for a in axes] if axes is not None else list(range(len(dims)))
    amounts: Array = np.zeros((2, len(dims)), np.int64)
    amounts[:, padded_axes] = pads.reshape(2, -1)
    is_inside = np.ones((), bool)
    for size, before, count in zip(dims, amounts[0], out, strict=True):
        positions = np.arange(count) - before
        is_inside = is_inside[..., None] & ((positions >= 0) & (positions < size))
    tape = Tape(node)
    padded = tape("Pad", "i0", amounts.ravel())
    return tape.body(tape("Where", is_inside, padded, tape.reshape("i2", ())))


@decomposes("ScatterND")
def scatter_nd(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ScatterND with a reduction: compare places with each update's, reduce over the updates."""
    data, indices = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    if data is None or indices is None or 0 in (*data, *indices):
        return None
    depth = indices[-1]
    places, updates, inner = prod(data[:depth]), prod(indices[:-1]), prod(data[depth:])
    tape = Tape(node)
    sizes = np.array(data[:depth], np.int64)
    rows = tape.reshape("i1", (updates, depth))
    positive = tape("Where", tape("Less", rows, np.array(0, np.int64)), tape("Add", rows, sizes), rows)
    strides = np.array([prod(data[k + 1 : depth]) for k in range(depth)], np.int64)
    spots = tape("ReduceSum", tape("Mul", positive, strides), np.array([1], np.int64), keepdims=1)
    return _reduced(node, tape, spots, (places, updates, inner))


@decomposes("ScatterElements")
def scatter_elements(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose ScatterElements with a reduction, like ScatterND with one element per update."""
    data, indices = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    if data is None or indices is None or 0 in (*data, *indices):
        return None
    axis, tape = int_of(node, "axis", 0) % len(data), Tape(node)
    size, zero = np.array(data[axis], np.int64), np.array(0, np.int64)
    positive = tape("Where", tape("Less", "i1", zero), tape("Add", "i1", size), "i1")
    strides = [prod(data[k + 1 :]) for k in range(len(data))]
    offsets = sum(np.indices(indices)[k] * strides[k] for k in range(len(data)) if k != axis)
    along = tape("Mul", positive, np.array(strides[axis], np.int64))
    if len(data) > 1:
        along = tape("Add", along, np.asarray(offsets, np.int64))
    return _reduced(node, tape, tape.reshape(along, (prod(indices), 1)), (prod(data), prod(indices), 1))


def _reduced(
    node: ir.Node, tape: Tape, positions: str, counts: tuple[int, int, int]
) -> onnx.GraphProto | None:
    """``positions``: the flat place of each update, updates x 1; ``counts``: places, updates, inner size."""
    places, updates, inner = counts
    kind, reduction = node.outputs[0].dtype, text_of(node, "reduction", "none")
    dims = dims_of(node.outputs[0])
    if (
        kind is None
        or dims is None
        or kind == ir.DataType.BOOL
        or places * updates * inner > MOST_COMPARISONS
    ):
        return None
    dtype, index = kind.numpy(), node.inputs[1]
    if index is None or index.dtype != ir.DataType.INT64 or reduction not in ("add", "mul", "max", "min"):
        return None
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    neutral, reduce, join = {
        "add": (0, "ReduceSum", "Add"),
        "mul": (1, "ReduceProd", "Mul"),
        "max": (low, "ReduceMax", "Max"),
        "min": (high, "ReduceMin", "Min"),
    }[reduction]
    met = tape("Equal", positions, np.arange(places, dtype=np.int64)[None])
    wide = tape("Where", tape.reshape(met, (updates, places, 1)), tape.reshape("i2", (updates, 1, inner)),
                np.array(neutral, dtype))  # fmt: skip
    total = tape(reduce, wide, np.array([0], np.int64), keepdims=0)
    return tape.body(tape.reshape(tape(join, tape.reshape("i0", (places, inner)), total), dims))


@decomposes("Slice")
def slice_by_axis(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Slice into one Slice per axis, of neighbours, with a start and an end in range.

    Every second row (a Focus stem that no Conv follows) is the first row of each pair:

        x[:, :, 0::2]  =>  Reshape N, C, H/2, 2, W  ->  [:, :, :, 0:1]  ->  Reshape N, C, H/2, W
    """
    dims, out = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    starts, ends, axes, steps = (array_of(input_of(node, k)) for k in (1, 2, 3, 4))
    if dims is None or out is None or 0 in out or starts is None or ends is None:
        return None
    if any(input_of(node, k) is not None and array_of(input_of(node, k)) is None for k in (3, 4)):
        return None
    sliced_axes = list(range(len(starts))) if axes is None else [int(axis) % len(dims) for axis in axes]
    strides = [1] * len(starts) if steps is None else [int(step) for step in steps]
    if any(step < 1 for step in strides) or len(set(sliced_axes)) != len(strides):
        return None
    tape, x, sizes = Tape(node), "i0", list(dims)
    for axis, low, high, step in zip(sliced_axes, starts, ends, strides, strict=True):
        positions = range(*slice(int(low), int(high), step).indices(dims[axis]))
        if len(positions) == dims[axis]:
            continue
        x = _part(tape, x, sizes, axis, positions)
        sizes[axis] = len(positions)
    if len(strides) == 1 and strides[0] == 1 and 0 <= starts[0] < ends[0] <= dims[sliced_axes[0]]:
        return None  # it is as plain as it can be
    return tape.body(x)


def _part(tape: Tape, x: str, sizes: list[int], axis: int, part: range) -> str:
    first, count, step = part[0], len(part), part.step
    if step == 1 or count == 1:
        return tape.part(x, axis, first, part[-1] + 1)
    whole = count if first + count * step <= sizes[axis] else count - 1  # the last block may be cut off
    head, tail = sizes[:axis], sizes[axis + 1 :]
    if (first, first + whole * step) != (0, sizes[axis]):
        blocks = tape.part(x, axis, first, first + whole * step)
    else:
        blocks = x
    blocks = tape.part(tape.reshape(blocks, (*head, whole, step, *tail)), axis + 1, 0, 1)
    blocks = tape.reshape(blocks, (*head, whole, *tail))
    if whole == count:
        return blocks
    return tape("Concat", blocks, tape.part(x, axis, part[-1], part[-1] + 1), axis=axis)


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
