"""Comparisons, logic and selection."""

from __future__ import annotations

import numpy as np

from edgekit_tflite.builder import Builder, Value, lower

COMPARISONS = {"Equal": "EQUAL", "Greater": "GREATER", "GreaterOrEqual": "GREATER_EQUAL", "Less": "LESS",
               "LessOrEqual": "LESS_EQUAL"}  # fmt: skip
LOGIC = {"And": "LOGICAL_AND", "Or": "LOGICAL_OR", "Xor": "NOT_EQUAL"}


@lower.family({**COMPARISONS, **LOGIC}, since=7, doc="{}, broadcast.")
def _compared(code: str, b: Builder, A: Value, B: Value) -> Value:
    return b.elementwise(code, [A, B], "bool")


@lower("Not", since=1)
def logical_not(b: Builder, X: Value) -> Value:
    """LOGICAL_NOT."""
    return b.unary("LOGICAL_NOT", X)


@lower("Where", since=9)
def where(b: Builder, condition: Value, X: Value, Y: Value) -> Value:
    """SELECT_V2, broadcast."""
    return b.elementwise("SELECT_V2", [condition, X, Y])


@lower("IsNaN", since=9)
def is_nan(b: Builder, X: Value) -> Value:
    """x != x."""
    return b.elementwise("NOT_EQUAL", [X, X], "bool")


@lower("IsInf", since=10)
def is_inf(b: Builder, X: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """Return which elements are equal to one of the infinities."""
    if detect_negative and detect_positive:
        return b.elementwise("EQUAL", [b.unary("ABS", X), b.scalar(np.inf)], "bool")
    if not detect_negative and not detect_positive:
        return b.elementwise("LOGICAL_AND", [is_nan(b, X), b.constant(np.zeros(1, bool))], "bool")
    return b.elementwise("EQUAL", [X, b.scalar(np.inf if detect_positive else -np.inf)], "bool")
