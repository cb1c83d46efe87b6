"""MaxPool, AveragePool and the global pools."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce as folded

import numpy as np

from edgekit.compiler.model.sliding_windows import Window, divisors
from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.layout import channels_last
from edgekit_tflite.ops_conv import filled, pad_spatial, spatial_2d
from edgekit_tflite.ops_math import power
from edgekit_tflite.ops_reduce import reduce
from edgekit_tflite.ops_shape import strided_slice
from edgekit_tflite.padding import padding_scheme, with_height

LOWEST = {"float32": float(np.finfo(np.float32).min), "int8": -128, "uint8": 0, "int16": -32768}
NON_NEGATIVE = {"RELU", "RELU6", "LOGISTIC", "EXP", "SOFTMAX", "ABS", "SQRT", "SQUARE"}


def _pool(b: Builder, code: str, x: Value, frame: Window, padding: str) -> Value:
    shape = (*x.shape[:2], *frame.out)
    return b.emit(
        code, [x], b.new(shape, x.dtype, channels_last(4), x.quantization),
        padding=padding, stride_h=frame.stride[0], stride_w=frame.stride[1],
        filter_height=frame.kernel[0], filter_width=frame.kernel[1], fused_activation_function="NONE",
    )  # fmt: skip


def never_negative(b: Builder, x: Value) -> bool:
    """Check whether the producer of ``x`` never returns a number below zero."""
    code, activation = b.producer_code(x)
    return code in NON_NEGATIVE or activation in ("RELU", "RELU6")


@lower("MaxPool", since=8)
def max_pool(b: Builder, X: Value, *, frame: Window) -> Value:
    """Lower 1-D and 2-D pools, dilated, any padding, ceil_mode; the indices are not supported."""
    if X.rank == 5 and X.dtype == "float32":
        return shifted(b, "MAXIMUM", X, frame, LOWEST[X.dtype])
    if X.rank not in (3, 4):
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; TFLite supports 1 or 2")
    frame = frame if X.rank == 4 else with_height(frame)
    spatial = spatial_2d(b, X)
    x = b.to(spatial, channels_last(4))
    padding, dense = padding_scheme(frame), not frame.is_dilated
    if padding == "EXPLICIT" or (padding == "SAME" and not dense):
        # XNNPACK takes PAD, with zeros, and not PADV2; zeros never win against what is not negative.
        zeros = x.dtype == "float32" and (never_negative(b, x) or never_negative(b, spatial))
        x, padding = pad_spatial(b, x, frame.pads, None if zeros else LOWEST[x.dtype]), "VALID"
    out = _pool(b, "MAX_POOL_2D", x, frame, padding) if dense else _dilated_max(b, x, frame)
    return out if X.rank == 4 else b.reshape(out, b.out_shape())


def _dilated_max(b: Builder, x: Value, frame: Window) -> Value:
    """Emit maxima over shifted copies, along H, then along W: TFLite's pools have no dilation."""
    for axis in (2, 3):
        kernel, stride = frame.kernel[axis - 2], frame.stride[axis - 2]
        count, distance = frame.out[axis - 2], frame.dilation[axis - 2]
        best: Value | None = None
        for offset in range(kernel):
            begin, step = [0] * 4, [1] * 4
            begin[axis], step[axis] = offset * distance, stride
            shape = tuple(count if a == axis else n for a, n in enumerate(x.shape))
            copy = strided_slice(b, x, begin, step, shape)
            best = copy if best is None else b.elementwise("MAXIMUM", [best, copy])
        assert best is not None
        x = best
    return x


@lower("AveragePool", since=7)
def average_pool(b: Builder, X: Value, *, frame: Window, count_include_pad: bool) -> Value:
    """Lower 1-D and 2-D pools, dilated, any padding, ceil_mode, count_include_pad."""
    if X.rank not in (3, 4, 5):
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; TFLite supports 1 to 3")
    frame = with_height(frame) if X.rank == 3 else frame
    counts = divisors(frame, count_include_pad)
    if X.rank == 5:
        total = shifted(b, "ADD", X, frame, 0.0)
        return b.binary("MUL", total, b.constant((1 / counts).astype(np.float32)))
    x = b.to(spatial_2d(b, X), channels_last(4))
    dense = not frame.is_dilated
    whole = float(np.prod(frame.kernel))
    # TFLite's SAME divides by the number of elements within the input: no declared padding is counted.
    inside_only = np.array_equal(counts, divisors(frame, False))
    if b.form is not None:  # planned only where every window counts as many
        x = pad_spatial(b, x, frame.pads)
        out = _equal_weights(b, x, frame, float(counts.flat[0]))
        return out if X.rank == 4 else b.reshape(out, b.out_shape())
    padding = padding_scheme(frame)
    if padding != "EXPLICIT" and dense and inside_only:
        out = _pool(b, "AVERAGE_POOL_2D", x, frame, padding)
        return out if X.rank == 4 else b.reshape(out, b.out_shape())
    x = pad_spatial(b, x, frame.pads)
    out = _pool(b, "AVERAGE_POOL_2D", x, frame, "VALID") if dense else _equal_weights(b, x, frame, whole)
    if not np.all(counts == whole):
        correction = (whole / counts).astype(np.float32)[None, None]
        out = b.binary("MUL", out, b.constant(correction))
    return out if X.rank == 4 else b.reshape(out, b.out_shape())


def _equal_weights(b: Builder, x: Value, frame: Window, count: float) -> Value:
    """Emit a depthwise convolution with weights 1 / count, for dilated pools and pools on integers.

    TFLite's pools have no dilation, and XNNPACK has no integer AVERAGE_POOL_2D. The output scale is free.
    """
    channels = x.shape[1]
    if x.shape[2:] == frame.kernel and b.form is not None:
        return b.emit("MEAN", [x, b.ints([1, 2])], b.result((*x.shape[:2], 1, 1), x.perm), keep_dims=True)
    weights = b.constant(np.full((channels, 1, *frame.kernel), 1 / count, np.float32))
    if b.form is not None:
        ones = b.constant(np.ones((channels, 1, *frame.kernel), np.int8))
        weights = replace(ones, quantization=TensorQuantization((1 / count,) * channels, (0,) * channels))
    stored = b.kernel(weights, (1, 2, 3, 0), axis=3)
    return b.emit(
        "DEPTHWISE_CONV_2D", [x, stored, b.bias(None, channels, x, weights)],
        b.result((*x.shape[:2], *frame.out), channels_last(4)),
        padding="VALID", stride_h=frame.stride[0], stride_w=frame.stride[1], depth_multiplier=1,
        dilation_h_factor=frame.dilation[0], dilation_w_factor=frame.dilation[1],
        fused_activation_function="NONE",
    )  # fmt: skip


GLOBAL = {"GlobalAveragePool": "MEAN", "GlobalMaxPool": "REDUCE_MAX"}


@lower.family(GLOBAL, since=1, doc="{} over all spatial axes, in any layout.")
def _global_pool(code: str, b: Builder, X: Value) -> Value:
    return reduce(b, code, X, tuple(range(2, X.rank)), keep=True)


# Pools that TFLite has no operator for: over three axes, and by other norms.
#
# MaxPool, AveragePool of rank 5    shifted copies combined along one axis after the other
# LpPool                            (sum |x|^p)^(1/p), the sum from an average


def shifted(b: Builder, code: str, x: Value, frame: Window, fill: float) -> Value:
    """``code`` (MAXIMUM, ADD) over all elements of each window, along one spatial axis after the other."""
    both = ((0, 0), (0, 0), *frame.pads)
    if any(sum(pair) for pair in both):
        padded = tuple(n + before + after for n, (before, after) in zip(x.shape, both, strict=True))
        x = filled(b, x, [both[axis] for axis in x.perm], fill, padded)
    for index, (kernel, stride, distance, count) in enumerate(
        zip(frame.kernel, frame.stride, frame.dilation, frame.out, strict=True)
    ):
        axis = index + 2
        copies = []
        for offset in range(kernel):
            begin, step = [0] * x.rank, [1] * x.rank
            begin[axis], step[axis] = offset * distance, stride
            shape = tuple(count if a == axis else n for a, n in enumerate(x.shape))
            copies.append(strided_slice(b, x, begin, step, shape))
        x = folded(lambda left, right: b.binary(code, left, right), copies)
    return x


@lower("LpPool", since=18)
def lp_pool(b: Builder, X: Value, *, frame: Window, p: int) -> Value:
    """Emit the sums of shifted copies of |x|^p, and their root."""
    raised = b.unary("ABS", X) if p == 1 else b.unary("SQUARE", X)
    if p not in (1, 2):
        raised = power(b, b.unary("ABS", X), b.scalar(p))
    total = shifted(b, "ADD", raised, frame, 0.0)
    if p == 1:
        return total
    return b.unary("SQRT", total) if p == 2 else power(b, total, b.scalar(1 / p))
