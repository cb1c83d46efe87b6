"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from edgekit.compiler.compress.torch.graph_program import (
    DTYPES,
    GraphProgram,
    Tensor,
    Value,
    Values,
    is_float,
    lower,
)
from edgekit.compiler.quantize.numerics import stored_range
from edgekit.diagnostics import Inexpressible

UNARY: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "HardSwish": F.hardswish,
    "Identity": lambda x: x,
    "Log": torch.log,
    "Mish": F.mish,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tanh": torch.tanh,
}
BINARY: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Or": torch.logical_or,
    "PRelu": lambda x, slope: torch.where(x > 0, x, slope * x),
    "Pow": lambda x, y: torch.pow(x, y).to(x.dtype),
    "Sub": torch.sub,
    "Xor": torch.logical_xor,
}


@lower.family(UNARY, since=1, doc="``{op}`` of each element.")
def _unary(function: Callable[[Tensor], Tensor], b: GraphProgram, X: Value) -> Values:
    return b.emit(function, X)


@lower.family(BINARY, since=7, doc="``{op}``, broadcast.")
def _binary(function: Callable[[Tensor, Tensor], Tensor], b: GraphProgram, A: Value, B: Value) -> Values:
    return b.emit(function, A, B)


VARIADIC = {"Max": torch.maximum, "Min": torch.minimum, "Sum": torch.add}


@lower.family(VARIADIC, since=8, doc="``{op}`` of any number of values, broadcast.")
def _variadic(function: Callable[[Tensor, Tensor], Tensor], b: GraphProgram, *data: Value) -> Values:
    return b.emit(lambda *given: reduce(function, given), *data)


@lower("Mean", since=8)
def mean(b: GraphProgram, *data: Value) -> Values:
    """Emit the mean of any number of values, broadcast."""
    return b.emit(lambda *given: reduce(torch.add, given) / len(given), *data)


@lower("Div", since=7)
def div(b: GraphProgram, A: Value, B: Value) -> Values:
    """Emit a division; integers are divided towards zero."""
    mode = None if is_float(A) else "trunc"
    return b.emit(lambda x, y: torch.div(x, y, rounding_mode=mode), A, B)


@lower("Where", since=9)
def where(b: GraphProgram, condition: Value, X: Value, Y: Value) -> Values:
    """Return X where the condition holds, else Y."""
    return b.emit(torch.where, condition, X, Y)


@lower("Clip", since=11)
def clip(b: GraphProgram, input: Value, min: Value | None = None, max: Value | None = None) -> Values:
    """Emit a clamp between two numbers, each of which is optional."""

    def run(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        return x if low is None and high is None else torch.clamp(x, low, high)

    numbers = [None if end is None or end.const is None else end.const.item() for end in (min, max)]
    if all(end is None or end.const is not None for end in (min, max)):
        # With numbers it is one kernel, with tensors three.
        return b.emit(
            lambda x, *_: x if numbers == [None, None] else torch.clamp(x, *numbers), input, min, max
        )
    return b.emit(run, input, min, max)


@lower("Cast", since=9)
def cast(b: GraphProgram, input: Value, *, to: int) -> Values:
    """Emit a conversion to another element type."""
    dtype = _dtype(b.out())
    return b.emit(lambda x: x.to(dtype), input)


def _dtype(value: Value) -> Any:
    if value.dtype not in DTYPES:
        raise Inexpressible(f"{value.dtype or 'unknown'} elements are not supported in training")
    return DTYPES[value.dtype]


@lower("LeakyRelu", since=6)
def leaky_relu(b: GraphProgram, X: Value, *, alpha: float = 0.01) -> Values:
    """x, or alpha * x below 0."""
    return b.emit(lambda x: F.leaky_relu(x, alpha), X)


@lower.family({"Celu": F.celu, "Elu": F.elu}, since=6, doc="x, or {op} below 0.")
def _elu(function: Callable[..., Tensor], b: GraphProgram, X: Value, *, alpha: float = 1.0) -> Values:
    return b.emit(lambda x: function(x, alpha), X)


@lower("Selu", since=6)
def selu(b: GraphProgram, X: Value, *, alpha: float, gamma: float) -> Values:
    """gamma * x, or gamma * alpha * (exp(x) - 1) below 0."""
    return b.emit(lambda x: gamma * F.elu(x, alpha), X)


@lower("HardSigmoid", since=6)
def hard_sigmoid(b: GraphProgram, X: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Values:
    """alpha * x + beta between 0 and 1."""
    return b.emit(lambda x: torch.clamp(alpha * x + beta, 0, 1), X)


@lower("ThresholdedRelu", since=10)
def thresholded_relu(b: GraphProgram, X: Value, *, alpha: float = 1.0) -> Values:
    """x above alpha, else 0."""
    return b.emit(lambda x: F.threshold(x, alpha, 0.0), X)


@lower("Gelu", since=20)
def gelu(b: GraphProgram, X: Value, *, approximate: str = "none") -> Values:
    """Emit GELU, exact or approximated by tanh."""
    return b.emit(lambda x: F.gelu(x, approximate=approximate), X)


_STORED = ("int8", "uint8", "int16", "uint16")


@lower("QuantizeLinear", since=10)
def quantize_linear(
    b: GraphProgram,
    x: Value,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    axis: int,
    block_size: int,
) -> Values:
    """Emit the stored integers as float32, bit for bit. Rounding has the gradient of the identity (the
    straight-through estimator, arXiv 1308.3432); values that are clipped have none. With the DequantizeLinear
    after it, the scale's gradient is that of LSQ (arXiv 1902.08153)."""
    dtype = b.out().dtype
    if dtype not in _STORED or block_size:
        raise Inexpressible(
            f"{dtype} in blocks of {block_size}; training supports 8 and 16 bits without blocks"
        )
    low, high = (float(end) for end in stored_range(dtype))  # type: ignore[arg-type]  # uint16 is one too
    rank = x.rank

    def run(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        middle = 0.0 if zero is None else _along(zero.to(x.dtype), rank, axis)
        steps = x / _along(scale, rank, axis)
        rounded = steps.round().detach() + (steps - steps.detach())
        return torch.clamp(rounded, low - middle, high - middle) + middle

    return b.emit(run, x, y_scale, y_zero_point)


@lower("DequantizeLinear", since=10)
def dequantize_linear(
    b: GraphProgram,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None = None,
    *,
    axis: int,
    block_size: int,
) -> Values:
    """(stored - zero point) * scale."""
    if block_size or not is_float(b.out()):
        raise Inexpressible("block-wise scales are not supported in training")
    rank = x.rank

    def run(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        stored = x.to(scale.dtype)
        middle = 0.0 if zero is None else _along(zero.to(scale.dtype), rank, axis)
        return (stored - middle) * _along(scale, rank, axis)

    return b.emit(run, x, x_scale, x_zero_point)


def _along(numbers: Tensor, rank: int, axis: int) -> Tensor:
    """Reshape the numbers of each channel so that they broadcast; one number becomes a scalar."""
    if numbers.ndim == 0 or numbers.numel() == 1:
        return numbers.reshape(())
    shape = np.ones(rank, int).tolist()
    shape[axis] = -1
    return numbers.reshape(shape)
