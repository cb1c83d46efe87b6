"""Conv, ConvTranspose and the pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.compiler.model.sliding_windows import TransposedWindow, Window, divisors
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_shape import strided_slice
from edgekit_coreml.rounding import rounded_kernels


def interleaved(frame: Window) -> dict[str, Any]:
    """Return the arguments ``pad_type`` and ``pad`` of a conv or pool, as far as windows reach."""
    pad = [n for pair in frame.pads for n in pair]
    return {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}


def bias_of(b: Builder, bias: Value | None) -> Value | None:
    """Return a bias in the form that an operator takes: constant, of rank 1."""
    return bias if bias is not None and bias.const is not None else None


def filters(b: Builder, weights: Value) -> Value:
    """Return the weights. If they are rounded to float16, the rounding errors cancel."""
    if weights.const is None or weights.dtype != "float32" or b.compute != "float16":
        return weights
    return b.constant(rounded_kernels(np.asarray(weights.const)))


def added_bias(b: Builder, out: Value, bias: Value | None) -> Value:
    """``out`` plus a bias that the model computes; one that is constant is in the operator already."""
    if bias is None or bias.const is not None:
        return out
    return b.binary("add", out, b.reshape(bias, (1, bias.size, *(1,) * (out.rank - 2))))


@lower("Conv", since=11)
def conv(b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: Window, group: int) -> Value:
    """conv in one, two or three dimensions: grouped, dilated, any padding."""
    if not 3 <= X.rank <= 5:
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; Core ML supports 1 to 3")
    out = b.emit(
        "conv", x=X, weight=filters(b, W), bias=bias_of(b, B), strides=list(frame.stride), groups=group,
        dilations=list(frame.dilation), **interleaved(frame),
    )  # fmt: skip
    return added_bias(b, out, B)


@lower("ConvTranspose", since=11)
def conv_transpose(
    b: Builder, X: Value, W: Value, B: Value | None = None, *, frame: TransposedWindow, group: int
) -> Value:
    """conv_transpose; pads crop the full result, and what output_padding adds beyond it is zeros."""
    if not 3 <= X.rank <= 5:
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; Core ML supports 1 to 3")
    if W.const is None:
        raise Inexpressible("the model computes its weights; they must be constant")
    rank = X.rank - 2
    if min(frame.begin) < 0:
        raise Inexpressible(
            f"it pads its result by {list(frame.begin)} in front, which Core ML's conv_transpose can't"
        )
    missing = [max(-e, 0) for e in frame.end]
    computed = [n - m for n, m in zip(frame.out, missing, strict=True)]
    crop = [max(e, 0) for e in frame.end]
    pad = [n for both in zip(frame.begin, crop, strict=True) for n in both]
    options = {"pad_type": "custom", "pad": pad} if any(pad) else {"pad_type": "valid"}
    bias = None if any(missing) else bias_of(b, B)
    out = b.emit(
        "conv_transpose", x=X, weight=W, bias=bias, strides=list(frame.stride),
        dilations=list(frame.dilation), groups=group,
        output_shape=[X.shape[0], W.shape[1] * group, *computed], **options,
    )  # fmt: skip
    if any(missing):
        after = [n for m in missing for n in (0, m)]
        out = b.emit("pad", x=out, pad=after, mode="constant", constant_val=0.0)
        if B is not None and B.const is not None:
            shape = (1, B.size, *(1,) * rank)
            out = b.binary("add", out, b.constant(np.asarray(B.const).reshape(shape)))
    return added_bias(b, out, B)


def _check(X: Value) -> None:
    if not 3 <= X.rank <= 5:
        raise Inexpressible(f"it has {X.rank - 2} spatial axes; Core ML supports 1 to 3")
    if not X.is_float:
        raise Inexpressible(f"it pools {X.dtype}; Core ML supports floats", code="EK1004")


@lower("MaxPool", since=8)
def max_pool(b: Builder, X: Value, *, frame: Window) -> Value:
    """max_pool in one to three dimensions; dilated by the maximum of shifted copies; not the indices."""
    _check(X)
    if frame.is_dilated:
        return _dilated_max(b, X, frame)
    return b.emit(
        "max_pool", x=X, kernel_sizes=list(frame.kernel), strides=list(frame.stride), **interleaved(frame)
    )


def _dilated_max(b: Builder, x: Value, frame: Window) -> Value:
    """Emit the maximum over shifted copies, axis by axis, because Core ML's pools have no dilation."""
    lowest = float(np.finfo(np.dtype(b.compute)).min)
    for axis, (before, after) in enumerate(frame.pads):
        if before or after:
            pad = [0] * (2 * x.rank)
            pad[2 * (axis + 2)], pad[2 * (axis + 2) + 1] = before, after
            x = b.emit("pad", x=x, pad=pad, mode="constant", constant_val=lowest)
    for axis, count in enumerate(b.out_shape()[2:]):
        best: Value | None = None
        for offset in range(frame.kernel[axis]):
            begin, step = [0] * x.rank, [1] * x.rank
            begin[axis + 2], step[axis + 2] = offset * frame.dilation[axis], frame.stride[axis]
            shape = tuple(count if a == axis + 2 else n for a, n in enumerate(x.shape))
            copy = strided_slice(b, x, begin, step, shape)
            best = copy if best is None else b.binary("maximum", best, copy)
        assert best is not None
        x = best
    return x


@lower("AveragePool", since=7)
def average_pool(b: Builder, X: Value, *, frame: Window, count_include_pad: bool) -> Value:
    """avg_pool in one to three dimensions; dilated as a depthwise conv with equal weights."""
    _check(X)
    if not frame.is_dilated:
        # With ceil_mode a window reaches beyond the declared pads; what lies there is never counted.
        within = all(e <= d for e, d in zip(frame.used_end, frame.declared_end, strict=True))
        out = b.emit(
            "avg_pool", x=X, kernel_sizes=list(frame.kernel), strides=list(frame.stride),
            exclude_padding_from_average=not count_include_pad, **interleaved(frame),
        )  # fmt: skip
        if within or not count_include_pad:
            return out
    else:
        weights = np.full((X.shape[1], 1, *frame.kernel), 1 / np.prod(frame.kernel), np.float32)
        out = b.emit(
            "conv", x=X, weight=b.constant(weights), strides=list(frame.stride), groups=X.shape[1],
            dilations=list(frame.dilation), **interleaved(frame),
        )  # fmt: skip
    counts = divisors(frame, count_include_pad)
    whole = float(np.prod(frame.kernel))
    if np.all(counts == whole):
        return out
    return b.binary("mul", out, b.constant((whole / counts).astype(np.float32)[None, None]))


GLOBAL = {"GlobalAveragePool": "reduce_mean", "GlobalMaxPool": "reduce_max"}


@lower.family(GLOBAL, since=1, doc="{} over all spatial axes.")
def _global_pool(mil: str, b: Builder, X: Value) -> Value:
    return b.emit(mil, x=X, axes=list(range(2, X.rank)), keep_dims=True)
