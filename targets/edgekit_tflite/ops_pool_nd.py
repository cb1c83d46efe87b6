"""Pools that TFLite has no operator for: over three axes, and by other norms.

MaxPool, AveragePool of rank 5    shifted copies combined along one axis after the other
LpPool                            (sum |x|^p)^(1/p), the sum from an average
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as folded

from edgekit.compiler.lowering.sliding_windows import Window, window
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.ops_conv import filled
from edgekit_tflite.ops_math import power
from edgekit_tflite.ops_shape import strided_slice


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
def lp_pool(
    b: Builder,
    X: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int],
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """Emit the sums of shifted copies of |x|^p, and their root."""
    frame = window(X.shape[2:], b.out_shape()[2:], kernel_shape, strides, dilations, auto_pad, pads)
    raised = b.unary("ABS", X) if p == 1 else b.unary("SQUARE", X)
    if p not in (1, 2):
        raised = power(b, b.unary("ABS", X), b.scalar(p))
    total = shifted(b, "ADD", raised, frame, 0.0)
    if p == 1:
        return total
    return b.unary("SQRT", total) if p == 2 else power(b, total, b.scalar(1 / p))
