"""Comparisons, logic and selection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.values import MASK_LIMIT

COMPARISONS = {"Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
               "LessOrEqual": "less_equal"}  # fmt: skip
LOGIC = {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}


@lower.family({**COMPARISONS, **LOGIC}, since=7, doc="{}, broadcast.")
def _compared(mil: str, b: Builder, A: Value, B: Value) -> Value:
    if mil == "equal" and A.dtype == "bool":
        return b.unary("logical_not", b.binary("logical_xor", A, B))
    return b.binary(mil, A, B)


def masked(b: Builder, x: Value) -> Value:
    """``x``, a constant of which what float16 does not hold becomes a finite mask."""
    if x.const is None or x.dtype != "float32" or b.compute != "float16":
        return x
    array = np.asarray(x.const, np.float32)
    beyond = np.abs(array) > np.finfo(np.float16).max
    if not beyond.any():
        return x
    return b.constant(np.where(beyond, np.copysign(np.float32(MASK_LIMIT), array), array))


def broadcast(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """``x`` in a larger shape; a constant is spread here."""
    target = tuple(shape)
    if x.shape == target:
        return x
    if x.const is not None:
        return b.constant(np.broadcast_to(x.const, target), x.dtype)
    x = b.reshape(x, (1,) * (len(target) - x.rank) + x.shape)
    times = [n // m for n, m in zip(target, x.shape, strict=True)]
    return b.emit("tile", x=x, reps=times) if max(times, default=1) > 1 else x


def select(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """``x`` where ``condition`` holds, else ``y``; all three in one shape.

    The Neural Engine's compiler rejects a select that broadcasts.
    """
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    x, y = masked(b, x), masked(b, y)
    condition, x, y = (broadcast(b, v, shape) for v in (condition, x, y))
    return b.emit("select", cond=condition, a=x, b=y)


@lower("Not", since=1)
def logical_not(b: Builder, X: Value) -> Value:
    """logical_not."""
    return b.unary("logical_not", X)


@lower("Where", since=9)
def where(b: Builder, condition: Value, X: Value, Y: Value) -> Value:
    """select, its operands in one shape."""
    return select(b, condition, X, Y)


@lower("IsNaN", since=9)
def is_nan(b: Builder, X: Value) -> Value:
    """x != x."""
    return b.binary("not_equal", X, X)


@lower("IsInf", since=10)
def is_inf(b: Builder, X: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Return which elements are beyond the largest finite number."""
    largest = float(np.finfo(np.dtype(b.compute)).max)
    if detect_negative and detect_positive:
        return b.binary("greater", b.unary("abs", X), b.scalar(largest))
    if detect_positive:
        return b.binary("greater", X, b.scalar(largest))
    if detect_negative:
        return b.binary("less", X, b.scalar(-largest))
    return (
        b.binary("not_equal", X, X) if X.rank == 0 else broadcast(b, b.constant(np.zeros(1, bool)), X.shape)
    )
