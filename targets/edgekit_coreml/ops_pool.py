"""MaxPool, AveragePool and the global pools."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.model.sliding_windows import Window, divisors
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_conv import interleaved
from edgekit_coreml.ops_shape import strided_slice


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
