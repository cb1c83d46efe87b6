"""Resize: TFLite's own operators if they compute the same, else products with constant matrices.

Every ONNX resize is separable and linear: along each axis the output is a constant matrix times the input. So
whatever a RESIZE operator has no form for (cubic, antialias, unusual coordinates) is still exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.lowering.resize_arguments import Resizing, repetition
from edgekit.compiler.model.resize_matrix import ResizeAxis
from edgekit.tensor_spec import Array
from edgekit_tflite import layout
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import channels_last
from edgekit_tflite.ops_conv import spatial_2d
from edgekit_tflite.ops_index import gather
from edgekit_tflite.ops_matmul import dense
from edgekit_tflite.ops_shape import CONCATENATION_INPUTS
from edgekit_tflite.padding import bilinear_options


@lower("Resize", since=13)
def resize(b: Builder, X: Value, *, resizing: Resizing) -> Value:
    """Resize in every mode, coordinate transformation and axis. The common linear cases take one operator."""
    if not resizing.changed:
        return X
    if resizing.mode == "nearest":
        return _cropped(b, _nearest(b, X, resizing), resizing)
    if resizing.mode == "linear" and not resizing.smooths and not resizing.exclude_outside:
        resized = _bilinear(b, X, b.out_shape(), resizing.lines)
        if resized is not None:
            return resized
    out = X
    for axis in resizing.changed:
        out = along(b, out, axis, resizing.matrix(axis))
    return _cropped(b, out, resizing) if resizing.extrapolation_value else out


def _cropped(b: Builder, x: Value, resizing: Resizing) -> Value:
    """Put the extrapolation value at points that are outside of the image along any axis."""
    is_inside = resizing.is_inside
    if is_inside.all():
        return x
    mask, value = b.constant(np.broadcast_to(is_inside, x.shape)), b.scalar(resizing.extrapolation_value)
    return b.elementwise("SELECT_V2", [mask, x, value])


def along(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """``matrix`` times ``x`` along one axis."""
    order = (*(a for a in range(x.rank) if a != axis), axis)
    product = dense(b, b.transpose(x, order), b.constant(matrix.T), None)
    return b.transpose(product, tuple(order.index(a) for a in range(x.rank)))


def _nearest(b: Builder, x: Value, resizing: Resizing) -> Value:
    for axis in resizing.changed:
        picked = resizing.indices(axis)
        times = repetition(picked, x.shape[axis])
        x = gather(b, x, b.constant(picked), axis=axis) if times is None else repeated(b, x, axis, times)
    return x


def repeated(b: Builder, x: Value, axis: int, times: int) -> Value:
    """Repeat each element along ``axis`` ``times`` times in a row.

    The axis and all that is stored after it is one block, which is joined to itself: a CONCATENATION, which
    XNNPACK takes; it takes neither RESIZE_NEAREST_NEIGHBOR nor TILE nor GATHER.
    """
    left = times
    while left > 1:
        some = next((n for n in range(CONCATENATION_INPUTS, 1, -1) if left % n == 0), left)
        left //= some
        stored_axis = x.perm.index(axis)
        stored = layout.physical(x.shape, x.perm)
        rows, block = int(np.prod(stored[: stored_axis + 1])), int(np.prod(stored[stored_axis + 1 :]))
        flat = b.view_as(x, (rows, block))
        out = b.new((rows, block * some), x.dtype, quantization=x.quantization)
        b.emit("CONCATENATION", [flat] * some, out, axis=1)
        shape = tuple(n * some if a == axis else n for a, n in enumerate(x.shape))
        x = b.stored_as(out, shape, x.perm)
    return x


def _bilinear(b: Builder, x: Value, shape: tuple[int, ...], lines: Sequence[ResizeAxis]) -> Value | None:
    """RESIZE_BILINEAR if its coordinates are those of the node, else None."""
    options = bilinear_options(lines)
    if options is None:
        return None
    source = b.to(spatial_2d(b, x), channels_last(4))
    sizes = shape[2:] if x.rank == 4 else (1, *shape[2:])
    out = b.new((*x.shape[:2], *sizes), x.dtype, channels_last(4), x.quantization)
    b.emit(
        "RESIZE_BILINEAR", [source, b.ints(sizes)], out,
        half_pixel_centers=options[0], align_corners=options[1],
    )  # fmt: skip
    return out if x.rank == 4 else b.reshape(out, shape)
