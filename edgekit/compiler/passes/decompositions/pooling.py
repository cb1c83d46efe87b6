"""Decomposes the forms of pooling that a target's kernels lack: ceil_mode, dilations, indices, integers."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, int_of, ints_of, text_of
from edgekit.compiler.model.sliding_windows import Window, divisors
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.tensor_spec import Array

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
NARROW = (ir.DataType.INT8, ir.DataType.UINT8)
MOST_PLACES = 2**22
"""Most elements that MaxPool with indices reads."""


def _windows(node: ir.Node) -> Window | None:
    x, y = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    if x is None or y is None or len(x) < 3 or 0 in (*x, *y):
        return None
    if text_of(node, "auto_pad", "NOTSET") != "NOTSET":
        return None
    rank = len(x) - 2
    pads = ints_of(node, "pads", [0] * 2 * rank)
    strides, dilations = (tuple(ints_of(node, name, [1] * rank)) for name in ("strides", "dilations"))
    kernel = tuple(ints_of(node, "kernel_shape"))
    return Window(x[2:], y[2:], kernel, strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))


def _planes(node: ir.Node) -> tuple[int, int]:
    dims = dims_of(node.inputs[0])
    assert dims is not None
    return dims[0], dims[1]


def _padded(tape: Tape, name: str, windows: Window, value: Array | None = None) -> str:
    """Pad the input, and cut it where the last window ends."""
    for axis, (size, after) in enumerate(zip(windows.size, windows.used_end, strict=True), 2):
        if after < 0:
            name = tape.part(name, axis, 0, size + after)
    ends = [max(after, 0) for after in windows.used_end]
    if not any((*windows.begin, *ends)):
        return name
    amounts = np.array([0, 0, *windows.begin, 0, 0, *ends], np.int64)
    return tape("Pad", name, amounts) if value is None else tape("Pad", name, amounts, value)


def _sums(node: ir.Node, tape: Tape, name: str, windows: Window, kind: ir.DataType) -> str:
    _, channels = _planes(node)
    ones: Array = np.ones((channels, 1, *windows.kernel), kind.numpy())
    return tape(
        "Conv", _padded(tape, name, windows), ones, group=channels, strides=windows.stride,
        dilations=windows.dilation, kernel_shape=windows.kernel,
    )  # fmt: skip


@decomposes("AveragePool")
def average_pool(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose AveragePool into zero padding, a plain AveragePool, and a constant factor for each window
    that contains padding. A depthwise Conv sums dilated windows."""
    windows, kind = _windows(node), node.outputs[0].dtype
    if windows is None or kind not in FLOATS:
        return None
    tape, size = Tape(node), prod(windows.kernel)
    met = divisors(windows, bool(int_of(node, "count_include_pad", 0)))
    if not met.all():
        return None
    if windows.is_dilated:
        sums, factor = _sums(node, tape, "i0", windows, kind), 1 / met
    else:
        padded = _padded(tape, "i0", windows)
        if padded == "i0" and not int_of(node, "ceil_mode", 0):
            return None  # it is as plain as it can be
        sums = tape("AveragePool", padded, kernel_shape=windows.kernel, strides=windows.stride)
        factor = size / met
    if (factor == 1).all():
        return tape.body(sums)
    return tape.body(tape("Mul", sums, factor.astype(kind.numpy())))


@decomposes("LpPool")
def lp_pool(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose LpPool: the root of each window's sum of powers, computed by a depthwise Conv."""
    windows, kind, p = _windows(node), node.outputs[0].dtype, int_of(node, "p", 2)
    if windows is None or kind not in FLOATS or p < 1:
        return None
    tape = Tape(node)
    if p == 2:
        return tape.body(tape("Sqrt", _sums(node, tape, tape("Mul", "i0", "i0"), windows, kind)))
    size = tape("Abs", "i0")
    if p == 1:
        return tape.body(_sums(node, tape, size, windows, kind))
    power, root = np.array(p, kind.numpy()), np.array(1 / p, kind.numpy())
    return tape.body(tape("Pow", _sums(node, tape, tape("Pow", size, power), windows, kind), root))


@decomposes("MaxPool")
def max_pool(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose MaxPool. Integers are pooled as floats, which represent them exactly. Dilated windows become
    the Max of slices, axis by axis. With indices, the result is an ArgMax over gathered windows."""
    windows, kind = _windows(node), node.outputs[0].dtype
    if windows is None or kind is None:
        return None
    tape = Tape(node)
    if kind in NARROW and len(node.outputs) == 1:
        wide = tape("Cast", "i0", to=int(ir.DataType.FLOAT))
        pooled = tape("MaxPool", wide, **{name: a.value for name, a in node.attributes.items()})
        return tape.body(tape("Cast", pooled, to=int(kind)))
    if kind not in FLOATS:
        return None
    if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return _with_indices(node, tape, windows, kind)
    if not windows.is_dilated:
        return None
    name = _padded(tape, "i0", windows, np.array(-np.inf, kind.numpy()))
    for axis, count in enumerate(windows.out):
        step, stride = windows.dilation[axis], windows.stride[axis]
        taps = [
            tape.part(name, axis + 2, k * step, k * step + (count - 1) * stride + 1, stride)
            for k in range(windows.kernel[axis])
        ]
        name = tape("Max", *taps) if len(taps) > 1 else taps[0]
    return tape.body(name)


def _with_indices(node: ir.Node, tape: Tape, windows: Window, kind: ir.DataType) -> onnx.GraphProto | None:
    """x: NC x spatial, with one -inf appended -> Gather: NC x windows x taps -> ReduceMax, ArgMax."""
    planes, size = prod(_planes(node)), prod(windows.size)
    taps, count = prod(windows.kernel), prod(windows.out)
    if planes * taps * count > MOST_PLACES:
        return None
    rank = len(windows.size)
    window = np.indices(windows.out).reshape(rank, count, 1)
    tap = np.indices(windows.kernel).reshape(rank, 1, taps)
    column = (rank, 1, 1)
    strides, dilations, before, sizes = (
        np.array(numbers).reshape(column)
        for numbers in (windows.stride, windows.dilation, windows.begin, windows.size)
    )
    positions = window * strides + tap * dilations - before
    is_inside = ((positions >= 0) & (positions < sizes)).all(axis=0)
    spots = tuple(np.clip(positions, 0, sizes - 1))
    table = np.where(is_inside, np.ravel_multi_index(spots, windows.size), size)
    order = "F" if int_of(node, "storage_order", 0) else "C"
    flat_indices = np.ravel_multi_index(spots, windows.size, order=order)  # type: ignore[call-overload]
    flat = tape.reshape("i0", (planes, size))
    ended = tape("Pad", flat, np.array([0, 0, 0, 1], np.int64), np.array(-np.inf, kind.numpy()))
    read = tape("Gather", ended, table.astype(np.int64), axis=1)
    largest = tape("ReduceMax", read, np.array([2], np.int64), keepdims=0)
    best = tape("ArgMax", read, axis=2, keepdims=0)
    place = tape("Add", best, (np.arange(count, dtype=np.int64) * taps)[None])
    pixel = tape("Gather", flat_indices.reshape(-1).astype(np.int64), place, axis=0)
    index = tape("Add", pixel, (np.arange(planes, dtype=np.int64) * size)[:, None])
    shape = (*_planes(node), *windows.out)
    return tape.body(tape.reshape(largest, shape), tape.reshape(index, shape))
