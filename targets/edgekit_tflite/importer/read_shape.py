"""Operators that change shapes, sizes and orders of axes: the inverse of ops_shape.py and ops_resize.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError
from edgekit_tflite.importer.readers import activated, need_rank, reads

MAX_MIRRORED = 1 << 20
"""Longest axis that is mirrored with its border, for which its indices are listed."""


def axis_of(g: OnnxGraph, axis: int, rank: int) -> int:
    """Return the axis, counted from the front.

    Raises:
        UnreadableError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise UnreadableError(g.op, f"its axis is {axis}, of {rank}")
    return axis % rank


@reads("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(g: OnnxGraph, op: Op) -> None:
    """Reshape to the shape that the file says that the result has."""
    x, out = op.inputs[0], op.outputs[0]
    if math.prod(g.shape(x)) != math.prod(g.shape(out)):
        raise UnreadableError(op, f"it makes {g.shape(out)} of {g.shape(x)}")
    g.set(out, g.reshape(g.value(x), g.shape(out)))


@reads("TRANSPOSE", inputs=2)
def transpose(g: OnnxGraph, op: Op) -> None:
    """Transpose."""
    g.set(op.outputs[0], g.node("Transpose", [g.value(op.inputs[0])], perm=g.ints(op.inputs[1])))


@reads("CONCATENATION")
def concatenation(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Concat."""
    axis = axis_of(g, op.options["axis"], len(g.shape(op.outputs[0])))
    g.set(op.outputs[0], activated(g, g.node("Concat", [g.value(i) for i in op.inputs], axis=axis)))


@reads("PACK")
def pack(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Concat of the inputs, reshaped to one axis more."""
    shape = g.shape(op.outputs[0])
    axis = axis_of(g, op.options["axis"], len(shape))
    part_shape = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [g.reshape(g.value(i), part_shape) for i in op.inputs]
    g.set(op.outputs[0], g.node("Concat", parts, axis=axis))


@reads("UNPACK")
def unpack(g: OnnxGraph, op: Op) -> None:
    """Split, and one axis less."""
    axis = axis_of(g, op.options["axis"], len(g.shape(op.inputs[0])))
    for out, part in zip(op.outputs, _split(g, op.inputs[0], axis, [1] * len(op.outputs)), strict=True):
        g.set(out, g.reshape(part, g.shape(out)))


def _split(g: OnnxGraph, x: int, axis: int, sizes: list[int]) -> list[str]:
    if sum(sizes) != g.shape(x)[axis]:
        raise UnreadableError(g.op, f"it splits {g.shape(x)[axis]} into {sizes}")
    return g.nodes("Split", [g.value(x), g.int64(sizes)], len(sizes), axis=axis)


@reads("SPLIT", inputs=2)
@reads("SPLIT_V", inputs=3)
def split(g: OnnxGraph, op: Op) -> None:
    """Split into the sizes that the results have."""
    x, along = (op.inputs[1], op.inputs[0]) if op.code == "SPLIT" else (op.inputs[0], op.inputs[2])
    axis = axis_of(g, g.integer(along), len(g.shape(x)))
    sizes = [g.shape(out)[axis] if axis < len(g.shape(out)) else -1 for out in op.outputs]
    for out, part in zip(op.outputs, _split(g, x, axis, sizes), strict=True):
        g.set(out, part)


@reads("SLICE", inputs=3)
def slice_(g: OnnxGraph, op: Op) -> None:
    """Slice; a size of -1 is the rest."""
    x, begin = op.inputs[0], g.ints(op.inputs[1])
    sizes = g.ints(op.inputs[2])
    if len(begin) != len(g.shape(x)) or len(sizes) != len(begin):
        raise UnreadableError(op, f"it begins at {begin} and has sizes {sizes}, of {g.shape(x)}")
    whole = zip(begin, sizes, g.shape(x), strict=True)
    end = [n if size < 0 else first + size for first, size, n in whole]
    g.set(op.outputs[0], g.node("Slice", [g.value(x), g.int64(begin), g.int64(end)]))


@reads("STRIDED_SLICE", inputs=4)
def strided_slice(g: OnnxGraph, op: Op) -> None:
    """Slice, and Reshape to the axes that the result has; the masks are resolved here.

    Source: the masks as numpy's index has them (tf.strided_slice): bit i is about entry i of begin, end and
    strides.
    """
    shape, masks = g.shape(op.inputs[0]), op.options
    begin, end, step = (g.ints(i) for i in op.inputs[1:4])
    if not len(begin) == len(end) == len(step):
        raise UnreadableError(op, f"it begins at {begin}, ends at {end} and steps by {step}")

    def marked(name: str, entry: int) -> bool:
        return bool(masks[f"{name}_mask"] >> entry & 1)

    starts, ends, steps, axes, axis = [], [], [], [], 0
    axis_count = sum(not marked("new_axis", n) and not marked("ellipsis", n) for n in range(len(begin)))
    if axis_count > len(shape) or sum(marked("ellipsis", n) for n in range(len(begin))) > 1:
        raise UnreadableError(op, f"it slices {axis_count} axes of {shape}, or has two ellipses")
    for entry in range(len(begin)):
        if marked("ellipsis", entry):
            axis += len(shape) - axis_count
            continue
        if marked("new_axis", entry):
            continue
        if axis >= len(shape) or not step[entry]:
            raise UnreadableError(op, f"it slices axis {axis} of {shape} by a step of {step[entry]}")
        size, stride = shape[axis], step[entry]
        first = begin[entry]
        last = begin[entry] + end[entry] if masks.get("offset") else end[entry]
        if marked("shrink_axis", entry):
            first = axis_of(g, first, size) if size else 0
            stride, last = 1, first + 1
        else:
            first = (0 if stride > 0 else size - 1) if marked("begin", entry) else first
            last = (size if stride > 0 else -size - 1) if marked("end", entry) else last
        starts.append(first)
        ends.append(last)
        steps.append(stride)
        axes.append(axis)
        axis += 1
    y = g.value(op.inputs[0])
    if axes:
        y = g.node("Slice", [y, *(g.int64(values) for values in (starts, ends, axes, steps))])
    out, sizes = g.shape(op.outputs[0]), list(shape)
    for a, first, last, stride in zip(axes, starts, ends, steps, strict=True):
        sizes[a] = len(range(shape[a])[slice(first, last, stride)])
    if math.prod(sizes) != math.prod(out):
        raise UnreadableError(op, f"it makes {out}, and its masks and numbers say {tuple(sizes)}")
    g.set(op.outputs[0], y if tuple(sizes) == out else g.reshape(y, out))


def _padding(g: OnnxGraph, x: int, paddings: int) -> list[list[int]]:
    """(before, after) of each axis."""
    flat = g.ints(paddings)
    if len(flat) != 2 * len(g.shape(x)):
        raise UnreadableError(g.op, f"it pads {g.shape(x)} by {flat}")
    return [flat[n : n + 2] for n in range(0, len(flat), 2)]


@reads("PAD", inputs=2)
@reads("PADV2", inputs=3)
def pad(g: OnnxGraph, op: Op) -> None:
    """Pad with zeros, or with a number."""
    pairs = _padding(g, op.inputs[0], op.inputs[1])
    amounts = g.int64([before for before, _ in pairs] + [after for _, after in pairs])
    fill = [] if op.code == "PAD" else [_scalar_value(g, op.inputs[2])]
    g.set(op.outputs[0], g.node("Pad", [g.value(op.inputs[0]), amounts, *fill]))


def _scalar_value(g: OnnxGraph, i: int) -> str:
    content = g.constant_floats(i)
    if content is not None and content.size == 1:
        return g.constant(content.reshape(()))
    return g.reshape(g.value(i), ())


@reads("MIRROR_PAD", inputs=2)
def mirror_pad(g: OnnxGraph, op: Op) -> None:
    """Pad in mode reflect; SYMMETRIC, which repeats the border, by Gather."""
    x, pairs = op.inputs[0], _padding(g, op.inputs[0], op.inputs[1])
    if op.options["mode"] == "REFLECT":
        amounts = g.int64([before for before, _ in pairs] + [after for _, after in pairs])
        g.set(op.outputs[0], g.node("Pad", [g.value(x), amounts], mode="reflect"))
        return
    y = g.value(x)
    for axis, (size, (before, after)) in enumerate(zip(g.shape(x), pairs, strict=True)):
        if not 0 <= before <= size or not 0 <= after <= size or (before + after and size > MAX_MIRRORED):
            raise UnreadableError(op, f"it mirrors {before} and {after} of {size}")
        if before or after:
            indices = np.pad(np.arange(size, dtype=np.int64), (before, after), "symmetric")
            y = g.node("Gather", [y, g.constant(indices)], axis=axis)
    g.set(op.outputs[0], y)


@reads("TILE", inputs=2)
def tile(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Tile."""
    g.set(op.outputs[0], g.node("Tile", [g.value(op.inputs[0]), g.int64(g.ints(op.inputs[1]))]))


@reads("BROADCAST_TO")
def broadcast_to(g: OnnxGraph, op: Op) -> None:
    """Expand."""
    shape = g.int64(list(g.shape(op.outputs[0])))
    g.set(op.outputs[0], g.node("Expand", [g.value(op.inputs[0]), shape]))


@reads("REVERSE_V2", inputs=2)
def reverse_v2(g: OnnxGraph, op: Op) -> None:
    """Slice backwards."""
    rank = len(g.shape(op.inputs[0]))
    axes = [axis_of(g, axis, rank) for axis in g.ints(op.inputs[1])]
    ends = [-(2**31)] * len(axes)
    numbers = [[-1] * len(axes), ends, axes, [-1] * len(axes)]
    g.set(op.outputs[0], g.node("Slice", [g.value(op.inputs[0]), *(g.int64(values) for values in numbers)]))


@reads("DEPTH_TO_SPACE")
def depth_to_space(g: OnnxGraph, op: Op) -> None:
    """DepthToSpace in the order that TFLite has, DCR."""
    need_rank(g, op.inputs[0], 4)
    x, size = g.nchw(g.value(op.inputs[0])), _block(g)
    g.set(op.outputs[0], g.nhwc(g.node("DepthToSpace", [x], blocksize=size, mode="DCR")))


@reads("SPACE_TO_DEPTH")
def space_to_depth(g: OnnxGraph, op: Op) -> None:
    """SpaceToDepth."""
    need_rank(g, op.inputs[0], 4)
    x, size = g.nchw(g.value(op.inputs[0])), _block(g)
    g.set(op.outputs[0], g.nhwc(g.node("SpaceToDepth", [x], blocksize=size)))


def _block(g: OnnxGraph) -> int:
    size = int(g.op.options["block_size"])
    if size < 1:
        raise UnreadableError(g.op, f"its blocks have a size of {size}")
    return size


@reads("SPACE_TO_BATCH_ND", inputs=3)
def space_to_batch_nd(g: OnnxGraph, op: Op) -> None:
    """Pad, then the blocks' axes apart and in front of the batch."""
    x, block, flat = op.inputs[0], g.ints(op.inputs[1]), g.ints(op.inputs[2])
    batch, *sizes = g.shape(x) or (0,)
    count, rank = len(block), len(sizes) + 1
    if len(flat) != 2 * count or count >= rank or min(block, default=0) < 1 or min(flat, default=0) < 0:
        raise UnreadableError(op, f"its blocks are {block}, its pads {flat}, of {g.shape(x)}")
    before, after = flat[::2], flat[1::2]
    padded = [n + b + a for n, b, a in zip(sizes, before, after, strict=False)]
    if any(n % b for n, b in zip(padded, block, strict=True)):
        raise UnreadableError(op, f"its blocks are {block}, of {padded}")
    y, rest = g.value(x), sizes[count:]
    if any(flat):
        none = [0] * (rank - count - 1)
        y = g.node("Pad", [y, g.int64([0, *before, *none, 0, *after, *none])])
    apart = [n for size, b in zip(padded, block, strict=True) for n in (size // b, b)]
    y = g.reshape(y, (batch, *apart, *rest))
    inner = range(2, 2 * count + 1, 2)
    outer = range(1, 2 * count + 1, 2)
    last = range(2 * count + 1, 2 * count + 1 + len(rest))
    y = g.node("Transpose", [y], perm=[*inner, 0, *outer, *last])
    shape = (batch * math.prod(block), *(size // b for size, b in zip(padded, block, strict=True)), *rest)
    g.set(op.outputs[0], g.reshape(y, shape))


@reads("BATCH_TO_SPACE_ND", inputs=3)
def batch_to_space_nd(g: OnnxGraph, op: Op) -> None:
    """Move the blocks' axes out of the batch and behind the spatial axes, then add Slice."""
    x, block, flat = op.inputs[0], g.ints(op.inputs[1]), g.ints(op.inputs[2])
    batch, *sizes = g.shape(x) or (0,)
    count = len(block)
    fits = (
        len(flat) == 2 * count
        and count <= len(sizes)
        and min(block, default=0) > 0
        and min(flat, default=0) >= 0
    )
    if not fits or batch % math.prod(block):
        raise UnreadableError(op, f"its blocks are {block}, its crops {flat}, of {g.shape(x)}")
    outer, rest = sizes[:count], sizes[count:]
    y = g.reshape(g.value(x), (*block, batch // math.prod(block), *outer, *rest))
    woven = [axis for n in range(count) for axis in (count + 1 + n, n)]
    y = g.node("Transpose", [y], perm=[count, *woven, *range(2 * count + 1, 2 * count + 1 + len(rest))])
    joined = [size * b for size, b in zip(outer, block, strict=True)]
    y = g.reshape(y, (batch // math.prod(block), *joined, *rest))
    if any(flat):
        ends = [size - after for size, after in zip(joined, flat[1::2], strict=True)]
        axes = list(range(1, count + 1))
        y = g.node("Slice", [y, g.int64(flat[::2]), g.int64(ends), g.int64(axes)])
    g.set(op.outputs[0], y)


@reads("SHAPE", "RANK")
def shape_of(g: OnnxGraph, op: Op) -> None:
    """Add a constant: shapes are static."""
    shape = g.shape(op.inputs[0])
    content = np.array(shape if op.code == "SHAPE" else len(shape), g.dtype(op.outputs[0]))
    g.set_constant(op.outputs[0], content)


@reads("FILL", inputs=2)
def fill(g: OnnxGraph, op: Op) -> None:
    """Expand of one number."""
    shape = g.int64(list(g.shape(op.outputs[0])))
    g.set(op.outputs[0], g.node("Expand", [_scalar_value(g, op.inputs[1]), shape]))


@reads("ZEROS_LIKE")
def zeros_like(g: OnnxGraph, op: Op) -> None:
    """Expand of zero."""
    shape = g.int64(list(g.shape(op.outputs[0])))
    g.set(op.outputs[0], g.node("Expand", [g.number(0, op.outputs[0]), shape]))


@reads("RANGE", inputs=3)
def range_(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Range."""
    g.set(op.outputs[0], g.node("Range", [_scalar_value(g, i) for i in op.inputs[:3]]))


@reads("CAST")
def cast(g: OnnxGraph, op: Op) -> None:
    """Cast of what is stored."""
    out = op.outputs[0]
    g.set_stored(out, g.cast(g.stored(op.inputs[0]), g.dtype(out)))


def _resized(g: OnnxGraph, **attributes: Any) -> None:
    x, out = g.op.inputs[0], g.op.outputs[0]
    batch, height, width, channels = need_rank(g, out, 4)
    need_rank(g, x, 4)
    sizes = g.int64([batch, channels, height, width])
    inputs = [g.nchw(g.value(x)), "", "", sizes]
    options = g.op.options
    if options["align_corners"] and options["half_pixel_centers"]:
        raise UnreadableError(
            g.op, "it aligns corners and has centers of half pixels, which exclude each other"
        )
    mode = "asymmetric"
    if options["align_corners"]:
        mode = "align_corners"
    elif options["half_pixel_centers"]:
        mode = "half_pixel"
    y = g.node("Resize", inputs, coordinate_transformation_mode=mode, **attributes)
    g.set(out, g.nhwc(y))


@reads("RESIZE_BILINEAR")
def resize_bilinear(g: OnnxGraph, op: Op) -> None:
    """Resize in mode linear."""
    _resized(g, mode="linear")


@reads("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest_neighbor(g: OnnxGraph, op: Op) -> None:
    """Resize in mode nearest.

    TFLite takes floor(x * scale), with half_pixel_centers floor((x + 0.5) * scale), which is ONNX's
    half_pixel rounded up from halves, and with align_corners the nearest, up from halves
    (tensorflow/lite/kernels/internal/reference/resize_nearest_neighbor.h).
    """
    plain = not op.options["align_corners"] and not op.options["half_pixel_centers"]
    _resized(g, mode="nearest", nearest_mode="floor" if plain else "round_prefer_ceil")
