"""Normalizations over axes of the data itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit.compiler.lowering.op_arguments import Axes
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_reduce import reduce


def normalized(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon) over ``axes``, the mean, and 1 / sqrt(variance + epsilon)."""
    mean = reduce(b, "reduce_mean", x, axes)
    centred = b.binary("sub", x, mean)
    variance = reduce(b, "reduce_mean", b.binary("mul", centred, centred), axes)
    inverse = b.unary("rsqrt", variance, epsilon=b.epsilon(epsilon))
    return b.binary("mul", centred, inverse), mean, inverse


def scaled(b: Builder, x: Value, scale: Value | None, bias: Value | None) -> Value:
    """x * scale + bias, both broadcast."""
    if scale is not None:
        x = b.binary("mul", x, scale)
    return x if bias is None else b.binary("add", x, bias)


@lower("LayerNormalization", since=17)
def layer_normalization(
    b: Builder, X: Value, Scale: Value, B: Value | None = None, *, axes: Axes, epsilon: float
) -> tuple[Value, ...]:
    """layer_norm over the last axes; in primitives where its statistics are outputs."""
    statistics = b.wants_output(1) or b.wants_output(2)
    shape = X.shape[axes[0] :]
    constant = Scale.const is not None and (B is None or B.const is not None)
    if statistics or not constant:
        normed, mean, inverse = normalized(b, X, axes, epsilon)
        return scaled(b, normed, Scale, B), mean, inverse
    gamma = b.constant(np.broadcast_to(np.asarray(Scale.const, np.float32), shape).copy())
    beta = None
    if B is not None:
        beta = b.constant(np.broadcast_to(np.asarray(B.const, np.float32), shape).copy())
    out = b.emit(
        "layer_norm", x=X, axes=list(axes), gamma=gamma, beta=beta, epsilon=b.epsilon(float(epsilon))
    )
    return (out,)


@lower("RMSNormalization", since=23)
def rms_normalization(b: Builder, X: Value, scale: Value, *, axes: Axes, epsilon: float) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * scale; in float16 the squares are of x over its largest element.

    x^2 overflows float16 from 256 on.
    """
    if b.compute == "float32":
        mean = reduce(b, "reduce_mean", b.binary("mul", X, X), axes)
        return scaled(b, b.binary("mul", X, b.unary("rsqrt", mean, epsilon=float(epsilon))), scale, None)
    top = reduce(b, "reduce_max", b.unary("abs", X), axes)
    size = b.binary("maximum", top, b.scalar(float(np.sqrt(epsilon))))
    small = b.binary("real_div", X, size)
    share = b.binary("real_div", b.scalar(float(np.sqrt(epsilon))), size)
    mean = reduce(b, "reduce_mean", b.binary("mul", small, small), axes)
    total = b.binary("add", mean, b.binary("mul", share, share))
    return scaled(b, b.binary("mul", small, b.unary("rsqrt", total, epsilon=0.0)), scale, None)


@lower("InstanceNormalization", since=6)
def instance_normalization(
    b: Builder, input: Value, scale: Value, B: Value, *, epsilon: float = 1e-5
) -> Value:
    """instance_norm in one and two dimensions with constant scales; else in primitives."""
    if input.rank in (3, 4) and scale.const is not None and B.const is not None:
        return b.emit("instance_norm", x=input, gamma=scale, beta=B, epsilon=b.epsilon(float(epsilon)))
    shape = (input.shape[1], *(1,) * (input.rank - 2))
    normed, _, _ = normalized(b, input, tuple(range(2, input.rank)), epsilon)
    return scaled(b, normed, b.reshape(scale, shape), b.reshape(B, shape))


@lower("GroupNormalization", since=21)
def group_normalization(
    b: Builder, X: Value, scale: Value, bias: Value, *, num_groups: int, epsilon: float
) -> Value:
    """Normalize each group as one row, with primitives for the means over it."""
    batch, channels, *spatial = X.shape
    rows = b.reshape(X, (batch, num_groups, X.size // (batch * num_groups)))
    normed, _, _ = normalized(b, rows, (2,), epsilon)
    shape = (channels, *(1,) * len(spatial))
    return scaled(b, b.reshape(normed, X.shape), b.reshape(scale, shape), b.reshape(bias, shape))


@lower("MeanVarianceNormalization", since=13)
def mean_variance_normalization(b: Builder, X: Value, *, axes: Sequence[int] = (0, 2, 3)) -> Value:
    """(x - mean) / (deviation + 1e-9), the specification's function."""
    norm_axes = tuple(axis % X.rank for axis in axes)
    centred = b.binary("sub", X, reduce(b, "reduce_mean", X, norm_axes))
    deviation = b.unary("sqrt", reduce(b, "reduce_mean", b.binary("mul", centred, centred), norm_axes))
    return b.binary("real_div", centred, b.binary("add", deviation, b.scalar(b.epsilon(1e-9))))


@lower("LpNormalization", since=1)
def lp_normalization(b: Builder, input: Value, *, axis: int = -1, p: int = 2) -> Value:
    """x / (sum |x|^p)^(1/p); 0 if the norm is 0."""
    norms = {1: "reduce_l1_norm", 2: "reduce_l2_norm"}
    if p not in norms:
        raise Inexpressible(f"p={p}; it must be 1 or 2")
    norm = reduce(b, norms[p], input, (axis % input.rank,))
    smallest = b.epsilon(float(np.finfo(np.float32).tiny))
    return b.binary("real_div", input, b.binary("maximum", norm, b.scalar(smallest)))


@lower("LRN", since=1)
def lrn(
    b: Builder, X: Value, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """local_response_norm over the channels; odd sizes."""
    if X.rank not in (3, 4) or size % 2 == 0:
        raise Inexpressible(f"size {size} and rank {X.rank}; Core ML supports odd sizes and ranks 3 and 4")
    return b.emit("local_response_norm", x=X, size=size, alpha=float(alpha), beta=float(beta), k=float(bias))
