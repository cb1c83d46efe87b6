"""Normalizations over axes of the data itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgekit.compiler.lowering.op_arguments import Axes
from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.layout import channels_last
from edgekit_tflite.ops_reduce import reduce


def normalized(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon) over ``axes``, the mean, and 1 / sqrt(variance + epsilon).

    In the layout that ``x`` has.
    """
    mean = reduce(b, "MEAN", x, axes, keep=True)
    centred = b.binary("SUB", x, mean)
    variance = reduce(b, "MEAN", b.unary("SQUARE", centred), axes, keep=True)
    inverse = b.unary("RSQRT", b.binary("ADD", variance, b.scalar(epsilon)))
    return b.binary("MUL", centred, inverse), mean, inverse


def scaled(b: Builder, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """x * scale + bias, both broadcast."""
    if scale is not None:
        x = b.binary("MUL", x, scale)
    return x if bias is None else b.binary("ADD", x, bias)


@lower("LayerNormalization", since=17)
def layer_normalization(
    b: Builder, X: Value, Scale: Value, B: Value | None = None, *, axes: Axes, epsilon: float
) -> tuple[Value, Value, Value]:
    """Normalize over the last axes, with the means in primitives, in any layout."""
    normal, mean, inverse = normalized(b, X, axes, epsilon)
    return scaled(b, normal, Scale, B), mean, inverse


@lower("RMSNormalization", since=23)
def rms_normalization(b: Builder, X: Value, scale: Value, *, axes: Axes, epsilon: float) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * scale in primitives, in any layout."""
    mean = reduce(b, "MEAN", b.unary("SQUARE", X), axes, keep=True)
    return scaled(
        b, b.binary("MUL", X, b.unary("RSQRT", b.binary("ADD", mean, b.scalar(epsilon)))), scale, None
    )


@lower("InstanceNormalization", since=6)
def instance_normalization(
    b: Builder, input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5
) -> Value:
    """Normalize over the spatial axes, with the means in primitives, in any layout."""
    shape = (input.shape[1], *(1,) * (input.rank - 2))
    normal, _, _ = normalized(b, input, tuple(range(2, input.rank)), epsilon)
    return scaled(b, normal, b.reshape(scale, shape), b.reshape(B, shape))


@lower("GroupNormalization", since=21)
def group_normalization(
    b: Builder, X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float
) -> Value:
    """Split the channels into groups, then normalize over each group, with the means in primitives."""
    batch, channels, *spatial = X.shape
    apart = b.reshape(X, (batch, num_groups, channels // num_groups, *spatial))
    normal, _, _ = normalized(b, apart, tuple(range(2, apart.rank)), epsilon)
    joined = b.reshape(normal, X.shape)
    shape = (channels, *(1,) * len(spatial))
    return scaled(b, joined, b.reshape(scale, shape), b.reshape(bias, shape))


@lower("MeanVarianceNormalization", since=13)
def mean_variance_normalization(b: Builder, X: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    """(x - mean) / (deviation + 1e-9), the specification's function, in any layout."""
    norm_axes = tuple(axis % X.rank for axis in axes)
    centred = b.binary("SUB", X, reduce(b, "MEAN", X, norm_axes, keep=True))
    deviation = b.unary("SQRT", reduce(b, "MEAN", b.unary("SQUARE", centred), norm_axes, keep=True))
    return b.binary("DIV", centred, b.binary("ADD", deviation, b.scalar(1e-9)))


@lower("LpNormalization", since=1)
def lp_normalization(b: Builder, input: Value, *, axis: int = -1, p: int = 2) -> Value:
    """x / (sum |x|^p)^(1/p); 0 if the norm is 0."""
    along = (axis % input.rank,)
    if p == 1:
        norm = reduce(b, "SUM", b.unary("ABS", input), along, keep=True)
    elif p == 2:
        norm = b.unary("SQRT", reduce(b, "SUM", b.unary("SQUARE", input), along, keep=True))
    else:
        raise Inexpressible(f"p={p}; it must be 1 or 2")
    return b.binary("DIV", input, b.binary("MAXIMUM", norm, b.scalar(float(np.finfo(np.float32).tiny))))


@lower("LRN", since=1)
def lrn(
    b: Builder, X: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """LOCAL_RESPONSE_NORMALIZATION over the channels; odd sizes."""
    if X.rank != 4 or size % 2 == 0:
        raise Inexpressible(f"size {size} and rank {X.rank}; TFLite supports odd sizes and rank 4")
    x = b.to(X, channels_last(4))
    # ONNX divides the sum by the window's size, TFLite does not.
    return b.emit(
        "LOCAL_RESPONSE_NORMALIZATION", [x], replace(b.like(x), quantization=None),
        radius=(size - 1) // 2, bias=float(bias), alpha=float(alpha) / size, beta=float(beta),
    )  # fmt: skip
