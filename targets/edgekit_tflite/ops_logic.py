"""Comparisons, logic, selection and bits: and, or, xor, not, shifts, float32 as int32.

    a & b = ((a + b) - (a ^ b)) / 2        a | b = (a ^ b) + (a & b)

TFLite has BITWISE_XOR. The sum of 32-bit numbers would overflow, so they are computed in halves.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from edgekit.diagnostics import Inexpressible
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.ops_math import wrapped_16

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


HALF = 1 << 16


def _int(b: Builder, number: int) -> Value:
    return b.constant(np.array([number], np.int32))


def _xor(b: Builder, x: Value, y: Value) -> Value:
    return b.binary("BITWISE_XOR", x, y)


def _halves(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the upper 16 bits with the sign, and the lower 16 bits."""
    high = b.binary("FLOOR_DIV", x, _int(b, HALF))
    return high, b.binary("SUB", x, b.binary("MUL", high, _int(b, HALF)))


def _and_half(b: Builder, x: Value, y: Value) -> Value:
    twice = b.binary("SUB", b.binary("ADD", x, y), _xor(b, x, y))
    return b.binary("FLOOR_DIV", twice, _int(b, 2))


def _and(b: Builder, x: Value, y: Value) -> Value:
    if x.dtype != "int32":
        return b.cast(_and_half(b, b.cast(x, "int32"), b.cast(y, "int32")), x.dtype)
    (x_high, x_low), (y_high, y_low) = _halves(b, x), _halves(b, y)
    high = b.binary("MUL", _and_half(b, x_high, y_high), _int(b, HALF))
    return b.binary("ADD", high, _and_half(b, x_low, y_low))


@lower("BitwiseAnd", since=18)
def bitwise_and(b: Builder, A: Value, B: Value) -> Value:
    """Compute the conjunction from sums and BITWISE_XOR, in halves of 16 bits."""
    return _and(b, A, B)


@lower("BitwiseOr", since=18)
def bitwise_or(b: Builder, A: Value, B: Value) -> Value:
    """a ^ b where they differ, and a & b."""
    return b.binary("ADD", _xor(b, A, B), _and(b, A, B))


@lower("BitwiseXor", since=18)
def bitwise_xor(b: Builder, A: Value, B: Value) -> Value:
    """BITWISE_XOR."""
    return _xor(b, A, B)


@lower("BitwiseNot", since=18)
def bitwise_not(b: Builder, X: Value) -> Value:
    """-1 - x; for unsigned numbers, their largest less x."""
    assert b.node is not None
    kind = b.node.outputs[0].dtype
    if kind in (ir.DataType.UINT32, ir.DataType.UINT64):
        raise Inexpressible("its result for small numbers does not fit into TFLite's int32", code="EK1004")
    top = {ir.DataType.UINT8: 255, ir.DataType.UINT16: 65535}.get(kind or ir.DataType.INT32, -1)
    result = b.binary("SUB", _int(b, top), b.cast(X, "int32"))
    return b.cast(result, X.dtype)


@lower("BitCast", since=26)
def bit_cast(b: Builder, input: Value, *, to: int) -> Value:
    """BITCAST between float32 and int32."""
    assert b.node is not None
    source, kinds = b.node.inputs[0], (ir.DataType.FLOAT, ir.DataType.INT32)
    if source is None or {source.dtype, ir.DataType(to)} != set(kinds):
        reason = "TFLite holds bits of 32: it casts between float32 and int32 only"
        raise Inexpressible(reason, code="EK1004")
    dtype = "int32" if to == ir.DataType.INT32 else "float32"
    return b.emit("BITCAST", [input], b.new(input.shape, dtype, input.perm))


@lower("BitShift", since=11)
def bit_shift(b: Builder, X: Value, Y: Value, *, direction: str) -> Value:
    """Emit products or quotients with powers of two: unsigned numbers, shifted by a constant."""
    assert b.node is not None
    if Y.const is None:
        raise Inexpressible("the model computes its shift; it must be constant")
    shift = np.asarray(Y.const, np.int64)
    if shift.min(initial=0) < 0 or shift.max(initial=0) > 30:
        raise Inexpressible(f"it shifts by {shift.min()} to {shift.max()} bits; TFLite supports 0 to 30")
    factor = b.constant(np.left_shift(1, shift).astype(np.int32))
    wide = b.cast(X, "int32")
    result = b.binary("MUL" if direction == "LEFT" else "FLOOR_DIV", wide, factor)
    return wrapped_16(b, b.cast(result, X.dtype))
