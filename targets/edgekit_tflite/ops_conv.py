"""Conv and ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.compiler.model.sliding_windows import TransposedWindow, Window
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from edgekit_tflite import layout
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.focus import blocks_as_channels
from edgekit_tflite.layout import Perm, Shape, channels_last, identity
from edgekit_tflite.padding import padding_scheme, with_height


def spatial_2d(b: Builder, x: Value) -> Value:
    """Return a value N, C, L as N, C, 1, L, and one of rank 4 unchanged."""
    if x.rank == 3:
        n, c, length = x.shape
        return b.reshape(b.to(x, channels_last(3)), (n, c, 1, length))
    return x


def pad_spatial(b: Builder, x: Value, pads: Sequence[tuple[int, int]], value: float | None = None) -> Value:
    """Pad the spatial axes of N, C ... by (before, after) for each, with zero or a stored number."""
    both = ((0, 0), (0, 0), *pads)
    if not any(sum(pair) for pair in both):
        return x
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, both, strict=True))
    if value is None:
        value = 0.0 if x.quantization is None else x.quantization.zero_point[0]
    return filled(b, x, [both[axis] for axis in x.perm], value, shape)


def filled(b: Builder, x: Value, pads: Sequence[tuple[int, int]], number: float, shape: Shape) -> Value:
    """Pad ``x`` to ``shape`` with a stored number. XNNPACK supports PAD, but not PADV2.

    Args:
        pads: (before, after) of each physical axis.
        number: Fill value in the stored type of ``x``: an integer if ``x`` is quantized.
    """
    out = b.new(shape, x.dtype, x.perm, x.quantization)
    stored = b.constant(np.array(pads, np.int32))
    if number == (0.0 if x.quantization is None else x.quantization.zero_point[0]):
        return b.emit("PAD", [x, stored], out)
    fill = np.array([number], np.dtype(x.dtype))
    return b.emit("PADV2", [x, stored, b.constant_like(fill, x)], out)


@lower("Conv", since=11)
def conv(b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: Window, group: int) -> Value:
    """1-D and 2-D, grouped, depthwise, dilated, any padding."""
    if X.rank not in (3, 4):
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; TFLite supports 1 or 2")
    depthwise = group == X.shape[1] and W.shape[1] == 1 and group > 1
    if W.const is None and group > 1 and not depthwise:
        raise Inexpressible("the model computes its weights, and it has groups")
    out_shape = b.out_shape()
    weights = b.fitted(X, W, B)
    if X.rank == 3:
        frame = with_height(frame)
        weights = over_height(b, weights)
    x = spatial_2d(b, X)
    blocks = blocks_as_channels(b, x, weights, frame) if b.form is not None and not b.plain else None
    x, weights, frame = blocks or (x, weights, frame)
    x = b.to(x, channels_last(4))
    padding = padding_scheme(frame)
    if padding == "EXPLICIT":
        x, padding = pad_spatial(b, x, frame.pads), "VALID"
    out = b.result((X.shape[0], W.shape[0], *frame.out), channels_last(4))
    options = {
        "padding": padding,
        "stride_h": frame.stride[0],
        "stride_w": frame.stride[1],
        "dilation_h_factor": frame.dilation[0],
        "dilation_w_factor": frame.dilation[1],
        "fused_activation_function": "NONE",
    }
    bias = b.bias(B, W.shape[0], x, weights)
    channels = x.shape[1]
    if depthwise:
        # ONNX orders the outputs by channel, then multiplier; so does TFLite.
        stored = kernel_of(b, weights, (1, 2, 3, 0), axis=3)
        multiplier = W.shape[0] // channels
        b.emit("DEPTHWISE_CONV_2D", [x, stored, bias], out, depth_multiplier=multiplier, **options)
    else:
        b.emit("CONV_2D", [x, kernel_of(b, weights, (0, 2, 3, 1), axis=0), bias], out, **options)
    return added_bias(b, out if X.rank == 4 else b.reshape(out, out_shape), B)


def over_height(b: Builder, weights: Value) -> Value:
    """Return weights O, I, L as O, I, 1, L; a constant keeps its scales."""
    shape = (*weights.shape[:2], 1, weights.shape[2])
    if weights.const is None:
        return b.reshape(weights, shape)
    return replace(weights, shape=shape, perm=identity(4), const=weights.const[:, :, None, :])


def kernel_of(b: Builder, weights: Value, order: Perm, axis: int) -> int:
    """Return the tensor of the weights: a constant's, or a TRANSPOSE of what the model computes."""
    return b.kernel(weights, order, axis=axis) if weights.const is not None else b.to(weights, order).tensor


def added_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    """``out`` plus a bias that the model computes; one that is constant is in the operator already."""
    if bias is None or bias.const is not None:
        return out
    return b.binary("ADD", out, b.reshape(bias, (1, bias.size, *(1,) * (out.rank - 2))))


@lower("ConvTranspose", since=11)
def conv_transpose(
    b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: TransposedWindow, group: int
) -> Value:
    """1-D and 2-D, grouped, dilated, any padding.

    TFLite has it without groups, dilation and cropping: a group is a slice of the channels, dilation is
    zeros between the weights, and pads crop the full result.
    """
    if X.rank not in (3, 4):
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; TFLite's TRANSPOSE_CONV supports 1 or 2")
    if W.const is None and (group > 1 or any(d != 1 for d in frame.dilation)):
        raise Inexpressible("the model computes its weights, and it has groups or dilations")
    rank = X.rank - 2
    out_shape = b.out_shape()
    kernel = b.fitted(X, W, B)
    if W.const is not None:
        spread = dilated(np.asarray(W.const), frame.dilation)
        kernel = replace(kernel, shape=spread.shape, const=spread)
    stride, full, begin = frame.stride, frame.full, frame.begin
    x = spatial_2d(b, X)
    if rank == 1:
        kernel, stride, full, begin = over_height(b, kernel), (1, *stride), (1, *full), (0, *begin)
    parts = []
    channels = X.shape[1] // group
    out_channels = W.shape[1]
    for index in range(group):
        part = x if group == 1 else channel_slice(b, x, index * channels, channels)
        part = b.to(part, channels_last(4))
        weight = kernel
        if kernel.const is not None:
            some_weights = kernel.const[index * channels : (index + 1) * channels]
            weight = replace(kernel, shape=some_weights.shape, const=some_weights)
        part_out = b.result((X.shape[0], out_channels, *full), channels_last(4))
        shape = b.ints(layout.physical(part_out.shape, part_out.perm))
        bias: list[int] = []
        if B is not None and B.const is not None:
            some = slice(index * out_channels, (index + 1) * out_channels)
            bias = [b.bias(replace(B, const=B.const[some]), out_channels, part, kernel)]
        b.emit(
            "TRANSPOSE_CONV", [shape, kernel_of(b, weight, (1, 2, 3, 0), axis=0), part, *bias], part_out,
            padding="VALID", stride_h=stride[0], stride_w=stride[1], fused_activation_function="NONE",
        )  # fmt: skip
        parts.append(part_out)
    out = parts[0] if group == 1 else concat_channels(b, parts)
    sizes = out_shape[2:] if rank == 2 else (1, *out_shape[2:])
    out = cropped(b, out, begin, sizes, B)
    return added_bias(b, out if rank == 2 else b.reshape(out, out_shape), B)


def dilated(weights: Array, dilations: Sequence[int]) -> Array:
    """Return the weights with zeros between their elements, for a dense window that reads at a distance."""
    if all(d == 1 for d in dilations):
        return weights
    sizes = [(k - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations, strict=True)]
    spread = np.zeros((*weights.shape[:2], *sizes), weights.dtype)
    steps = tuple(slice(None, None, d) for d in (1, 1, *dilations))
    spread[steps] = weights
    return spread


def channel_slice(b: Builder, x: Value, begin: int, count: int) -> Value:
    """Return channels ``begin`` to ``begin + count`` of N, C, H, W."""
    start = (0, begin, 0, 0)
    shape = (x.shape[0], count, *x.shape[2:])
    out = b.new(shape, x.dtype, x.perm, x.quantization)
    size = b.ints(layout.physical(shape, x.perm))
    return b.emit("SLICE", [x, b.ints(layout.physical(start, x.perm)), size], out)


def concat_channels(b: Builder, parts: Sequence[Value]) -> Value:
    """Concatenate values N, C, H, W, all stored alike, along C."""
    first = parts[0]
    shape = (first.shape[0], sum(p.shape[1] for p in parts), *first.shape[2:])
    out = b.new(shape, first.dtype, first.perm, first.quantization)
    axis = first.perm.index(1)
    return b.emit("CONCATENATION", list(parts), out, axis=axis)


def cropped(b: Builder, x: Value, begin: Sequence[int], sizes: Sequence[int], bias: Value | None) -> Value:
    """``sizes`` of N, C, H, W from ``begin`` on; what lies outside is what no input reaches: the bias."""
    covered = tuple(min(n - first, size) for n, first, size in zip(x.shape[2:], begin, sizes, strict=True))
    if (0, 0, *begin) != (0, 0, 0, 0) or covered != x.shape[2:]:
        if any(first < 0 for first in begin):
            raise Inexpressible(f"pads {list(begin)} are negative")
        shape = (*x.shape[:2], *covered)
        start, size = layout.physical((0, 0, *begin), x.perm), layout.physical(shape, x.perm)
        x = b.emit("SLICE", [x, b.ints(start), b.ints(size)], b.new(shape, x.dtype, x.perm, x.quantization))
    beyond = [(0, size - n) for size, n in zip(sizes, covered, strict=True)]
    if not any(after for _, after in beyond):
        return x
    if bias is not None and bias.const is not None and np.any(bias.const):
        raise Inexpressible("output_padding goes beyond what its window reaches, and its bias is not zero")
    return pad_spatial(b, x, beyond)
