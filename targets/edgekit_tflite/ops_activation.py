"""Activations and softmax."""

from __future__ import annotations

import numpy as np

from edgekit.compiler.lowering.activation_parameters import FLOAT32_MAX, clip_bounds, slope_along
from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.ops_reduce import reduce
from edgekit_tflite.pairs import following_quantization, stored_number

CLIPS = {(0.0, 6.0): "RELU6", (0.0, np.inf): "RELU", (-1.0, 1.0): "RELU_N1_TO_1"}


@lower.family({"Sigmoid": "LOGISTIC", "Tanh": "TANH", "HardSwish": "HARD_SWISH"}, since=6, doc="{}.")
def _activated(code: str, b: Builder, X: Value) -> Value:
    return b.unary(code, X)


@lower("Relu", since=6)
def relu(b: Builder, X: Value) -> Value:
    """RELU, fused into what makes its input."""
    if b.form is not None:
        return clamped(b, X, 0.0, np.inf) if b.form.output is None else b.unary("RELU", X)
    if X.dtype != "float32":
        return b.binary("MAXIMUM", X, b.constant_like(np.zeros(1, np.dtype(X.dtype)), X))
    return b.activate(X, "RELU")


def clamped(b: Builder, x: Value, low: float, high: float) -> Value:
    """Clamp integers to bounds; unchanged if their scale, or that of the next pair, ends there anyway."""
    assert b.node is not None
    assert x.quantization is not None

    def stored(quantization: TensorQuantization) -> tuple[int, int]:
        ends = (max(v, -FLOAT32_MAX) if v < 0 else min(v, FLOAT32_MAX) for v in (low, high))
        first, last = (stored_number(v, quantization) for v in ends)
        return first, last

    after = following_quantization(b.node.outputs[0])
    if stored(x.quantization) == (-128, 127) or (after is not None and stored(after) == (-128, 127)):
        return x
    bounds = stored(x.quantization)
    for (floor, greatest), code in CLIPS.items():
        ends = stored_number(floor, x.quantization), stored_number(min(greatest, FLOAT32_MAX), x.quantization)
        if ends == bounds:
            return b.activate(x, code)
    real = b.own_real(x)
    for code, number in (("MAXIMUM", low), ("MINIMUM", high)):
        if np.isfinite(number) and abs(number) < FLOAT32_MAX:
            real = b.binary(code, real, b.scalar(number))
    return b.quantized(real, x.quantization)


@lower("Clip", since=11)
def clip(b: Builder, input: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """RELU, RELU6 or RELU_N1_TO_1, fused into what makes its input; else MAXIMUM and MINIMUM."""
    bounds = clip_bounds(min, max)
    low, high = bounds
    if b.form is not None and low is not None and high is not None:
        if b.form.output is not None:
            return b.unary(CLIPS[low, high if high < FLOAT32_MAX else np.inf], input)
        return clamped(b, input, low, high)
    if input.dtype == "float32" and bounds.ends is not None:
        if bounds.ends == (-np.inf, np.inf):
            return input
        if bounds.ends in CLIPS:
            return b.activate(input, CLIPS[bounds.ends])
    x = input
    if min is not None and low != -np.inf:
        x = b.binary("MAXIMUM", x, min)
    if max is not None and high != np.inf:
        x = b.binary("MINIMUM", x, max)
    return x


@lower("LeakyRelu", since=6)
def leaky_relu(b: Builder, X: Value, *, alpha: float = 0.01) -> Value:
    """LEAKY_RELU."""
    return b.unary("LEAKY_RELU", X, alpha=float(alpha))


@lower("PRelu", since=9)
def prelu(b: Builder, X: Value, slope: Value) -> Value:
    """PRELU, which XNNPACK takes, for a slope along the last stored axis; else MAXIMUM and MINIMUM."""
    stored = slope_along(slope, X.shape, X.perm[-1]) if X.rank == 4 else None
    if stored is not None:
        return b.emit("PRELU", [X, b.constant(stored.reshape(1, 1, -1))], b.like(X))
    zero = b.scalar(0.0)
    below = b.binary("MUL", b.binary("MINIMUM", X, zero), slope)
    return b.binary("ADD", b.binary("MAXIMUM", X, zero), below)


@lower("Elu", since=6)
def elu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """ELU; with another alpha, max(x, 0) + alpha * elu(min(x, 0))."""
    if alpha == 1.0:
        return b.unary("ELU", X)
    zero = b.scalar(0.0)
    below = b.unary("ELU", b.binary("MINIMUM", X, zero))
    return b.binary("ADD", b.binary("MAXIMUM", X, zero), b.binary("MUL", below, b.scalar(alpha)))


@lower("Selu", since=6)
def selu(b: Builder, X: Value, *, alpha: float, gamma: float) -> Value:
    """gamma * elu(x, alpha)."""
    return b.binary("MUL", elu(b, X, alpha=alpha), b.scalar(gamma))


@lower("Celu", since=12)
def celu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + alpha * elu(min(x, 0) / alpha)."""
    if alpha == 1.0:
        return b.unary("ELU", X)
    zero = b.scalar(0.0)
    below = b.unary("ELU", b.binary("MUL", b.binary("MINIMUM", X, zero), b.scalar(1.0 / alpha)))
    return b.binary("ADD", b.binary("MAXIMUM", X, zero), b.binary("MUL", below, b.scalar(alpha)))


@lower("Gelu", since=20)
def gelu(b: Builder, X: Value, *, approximate: str = "none") -> Value:
    """GELU, by erf or by tanh."""
    if approximate not in ("none", "tanh"):
        raise Inexpressible(f"approximate={approximate!r} is neither 'none' nor 'tanh'")
    return b.unary("GELU", X, approximate=approximate == "tanh")


@lower("HardSigmoid", since=6)
def hard_sigmoid(b: Builder, X: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """min(max(alpha * x + beta, 0), 1) as relu6(6 * alpha * x + 6 * beta) / 6, whose clip is fused."""
    scaled = X if abs(6 * alpha - 1.0) < 1e-6 else b.binary("MUL", X, b.scalar(6 * alpha))
    shifted = b.binary("ADD", scaled, b.scalar(6 * beta), fused_activation_function="RELU6")
    return b.binary("MUL", shifted, b.scalar(1 / 6))


@lower("Softplus", since=1)
def softplus(b: Builder, X: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)): the plain form overflows above 88."""
    tail = b.unary("EXP", b.unary("NEG", b.unary("ABS", X)))
    log = b.unary("LOG", b.binary("ADD", tail, b.scalar(1.0)))
    return b.binary("ADD", b.binary("MAXIMUM", X, b.scalar(0.0)), log)


@lower("Softsign", since=1)
def softsign(b: Builder, input: Value) -> Value:
    """x / (1 + |x|)."""
    return b.binary("DIV", input, b.binary("ADD", b.unary("ABS", input), b.scalar(1.0)))


@lower("Mish", since=18)
def mish(b: Builder, X: Value) -> Value:
    """x * tanh(softplus(x))."""
    return b.binary("MUL", X, b.unary("TANH", softplus(b, X)))


@lower("ThresholdedRelu", since=10)
def thresholded_relu(b: Builder, X: Value, *, alpha: float = 1.0) -> Value:
    """x where x > alpha, else 0."""
    above = b.elementwise("GREATER", [X, b.scalar(alpha)], "bool")
    return b.elementwise("SELECT_V2", [above, X, b.scalar(0.0)])


@lower("Shrink", since=9)
def shrink(b: Builder, input: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    below = b.elementwise("LESS", [input, b.scalar(-lambd)], "bool")
    above = b.elementwise("GREATER", [input, b.scalar(lambd)], "bool")
    high = b.elementwise("SELECT_V2", [above, b.binary("SUB", input, b.scalar(bias)), b.scalar(0.0)])
    return b.elementwise("SELECT_V2", [below, b.binary("ADD", input, b.scalar(bias)), high])


def last_axis(b: Builder, x: Value, axis: int) -> Value:
    """``x`` with ``axis`` stored last."""
    axis %= x.rank
    return x if x.perm[-1] == axis else b.to(x, (*(a for a in x.perm if a != axis), axis))


@lower("Softmax", since=13)
def softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """SOFTMAX along any axis, which is stored last."""
    return b.unary("SOFTMAX", last_axis(b, input, axis), beta=1.0)


@lower("LogSoftmax", since=13)
def log_softmax(b: Builder, input: Value, *, axis: int = -1) -> Value:
    """x - max - log(sum(exp(x - max))) along any axis."""
    along = (axis % input.rank,)
    shifted = b.binary("SUB", input, reduce(b, "REDUCE_MAX", input, along, keep=True))
    total = reduce(b, "SUM", b.unary("EXP", shifted), along, keep=True)
    return b.binary("SUB", shifted, b.unary("LOG", total))
