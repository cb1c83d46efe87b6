"""Activations and softmax, in forms that stay finite in float16."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.activation_parameters import clip_bounds, slope_along
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_logic import select


@lower.family({"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}, since=6, doc="{}.")
def _activated(mil: str, b: Builder, X: Value) -> Value:
    if not X.is_float:
        return b.binary("maximum", X, b.scalar(0, X.dtype))
    return b.unary(mil, X)


@lower("Clip", since=11)
def clip(b: Builder, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """relu, relu6 or clip; maximum and minimum for integers and for limits that the model computes."""
    bounds = clip_bounds(min, max)
    low, high = bounds
    ends = bounds.ends
    if input.is_float and low is not None and high is not None and low <= high and ends is not None:
        if ends == (-np.inf, np.inf):
            return input
        if ends == (0.0, np.inf):
            return b.unary("relu", input)
        if ends == (0.0, 6.0):
            return b.unary("relu6", input)
        if -np.inf in ends:
            return b.binary("minimum", input, b.scalar(high))
        if np.inf in ends:
            return b.binary("maximum", input, b.scalar(low))
        return b.unary("clip", input, alpha=low, beta=high)
    x = input
    if min is not None and low != -np.inf:
        x = b.binary("maximum", x, b.reshape(min, ()))
    if max is not None and high != np.inf:
        x = b.binary("minimum", x, b.reshape(max, ()))
    return x


@lower("LeakyRelu", since=6)
def leaky_relu(b: Builder, X: Value, *, alpha: float = 0.01) -> Value:
    """leaky_relu."""
    return b.unary("leaky_relu", X, alpha=float(alpha))


@lower("PRelu", since=9)
def prelu(b: Builder, X: Value, slope: Value) -> Value:
    """prelu for one slope a channel, else relu and a product."""
    alpha = slope_along(slope, X.shape, 1) if X.rank == 4 else None
    if alpha is not None:
        return b.unary("prelu", X, alpha=b.constant(alpha))
    below = b.binary("mul", b.binary("minimum", X, b.scalar(0, X.dtype)), slope)
    return b.binary("add", b.binary("maximum", X, b.scalar(0, X.dtype)), below)


@lower("Elu", since=6)
def elu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """elu."""
    return b.unary("elu", X, alpha=float(alpha))


@lower("Selu", since=6)
def selu(b: Builder, X: Value, *, alpha: float, gamma: float) -> Value:
    """gamma * elu(x, alpha)."""
    return b.binary("mul", elu(b, X, alpha=alpha), b.scalar(gamma))


@lower("Celu", since=12)
def celu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + elu(min(x, 0) / alpha, alpha)."""
    if alpha == 1.0:
        return elu(b, X)
    below = b.binary("mul", b.binary("minimum", X, b.scalar(0.0)), b.scalar(1.0 / alpha))
    return b.binary("add", b.unary("relu", X), elu(b, below, alpha=alpha))


@lower("Gelu", since=20)
def gelu(b: Builder, X: Value, *, approximate: str = "none") -> Value:
    """gelu, by erf or by tanh."""
    modes = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}
    if approximate not in modes:
        raise Inexpressible(f"approximate={approximate!r} is neither 'none' nor 'tanh'")
    return b.unary("gelu", X, mode=modes[approximate])


@lower("HardSigmoid", since=6)
def hard_sigmoid(b: Builder, X: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """sigmoid_hard."""
    return b.unary("sigmoid_hard", X, alpha=float(alpha), beta=float(beta))


@lower("HardSwish", since=14)
def hard_swish(b: Builder, X: Value) -> Value:
    """x * sigmoid_hard(x)."""
    return b.binary("mul", X, hard_sigmoid(b, X, alpha=1 / 6, beta=0.5))


@lower("Softplus", since=1)
def softplus(b: Builder, X: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)): exp overflows float16 at 11, and MIL's softplus with it."""
    tail = b.unary("exp", b.binary("mul", b.unary("abs", X), b.scalar(-1.0)))
    log = b.unary("log", b.binary("add", tail, b.scalar(1.0)), epsilon=0.0)
    return b.binary("add", b.unary("relu", X), log)


@lower("Softsign", since=1)
def softsign(b: Builder, input: Value) -> Value:
    """softsign."""
    return b.unary("softsign", input)


@lower("Mish", since=18)
def mish(b: Builder, X: Value) -> Value:
    """x * tanh(softplus(x)), with the softplus that does not overflow."""
    return b.binary("mul", X, b.unary("tanh", softplus(b, X)))


@lower("ThresholdedRelu", since=10)
def thresholded_relu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """x where x > alpha, else 0."""
    return select(b, b.binary("greater", X, b.scalar(alpha)), X, b.scalar(0.0))


@lower("Shrink", since=9)
def shrink(b: Builder, input: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    below = b.binary("less", input, b.scalar(-lambd))
    above = b.binary("greater", input, b.scalar(lambd))
    high = select(b, above, b.binary("sub", input, b.scalar(bias)), b.scalar(0.0))
    return select(b, below, b.binary("add", input, b.scalar(bias)), high)


@lower("Softmax", since=13)
def softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """softmax along any axis."""
    return b.unary("softmax", input, axis=axis % max(input.rank, 1))


@lower("LogSoftmax", since=13)
def log_softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """x - max - log(sum(exp(x - max))): the log of a softmax is -inf in float16 (coremltools issue 2728)."""
    along = [axis % input.rank]
    top = b.emit("reduce_max", x=input, axes=along, keep_dims=True)
    shifted = b.binary("sub", input, top)
    total = b.emit("reduce_sum", x=b.unary("exp", shifted), axes=along, keep_dims=True)
    return b.binary("sub", shifted, b.unary("log", total, epsilon=0.0))
