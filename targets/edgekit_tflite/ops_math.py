"""Arithmetic on each element: binary operators, roots, powers, rounding, trigonometry, casts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.activation_parameters import batch_norm_factors, scalar_exponent
from edgekit.compiler.lowering.quantization_parameters import unsupported_type
from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.values import STORED

UNARY = {"Abs": "ABS", "Ceil": "CEIL", "Cos": "COS", "Exp": "EXP", "Floor": "FLOOR", "Log": "LOG",
         "Neg": "NEG", "Round": "ROUND", "Sign": "SIGN", "Sin": "SIN", "Sqrt": "SQRT"}  # fmt: skip
BYTES = TensorQuantization((1.0,), (0,))
"""The quantization of bytes that stand for 0 to 255."""


@lower.family(UNARY, since=6, doc="{}.")
def _unary(code: str, b: Builder, X: Value) -> Value:
    if X.dtype != "float32" and code == "ABS":
        return b.binary("MAXIMUM", X, b.unary("NEG", X)) if X.dtype != "uint8" else X
    if X.dtype != "float32" and code == "SIGN":
        one = b.constant(np.array([1], np.dtype(X.dtype)))
        minus_one = b.constant(np.array([-1], np.int32 if X.dtype == "uint8" else np.dtype(X.dtype)))
        return b.binary("MINIMUM", b.binary("MAXIMUM", X, minus_one), one)
    return b.unary(code, X)


@lower.family({"Add": "ADD", "Mul": "MUL", "Sub": "SUB"}, since=7, doc="{}, broadcast.")
def _binary(code: str, b: Builder, A: Value, B: Value) -> Value:
    if b.is_taken:  # a bias, which the MatMul before it adds
        return B if A.const is not None else A
    return wrapped_16(b, b.binary(code, A, B))


@lower.family({"Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD"}, since=8, doc="Emit a chain of {}.")
def _variadic(code: str, b: Builder, *data_0: Value) -> Value:
    result = data_0[0]
    for value in data_0[1:]:
        result = b.binary(code, result, value)
    return result


def wrapped_16(b: Builder, x: Value) -> Value:
    """Reduce the node's result modulo 2^16 if it is uint16, which is held as int32."""
    if b.node is None or b.node.outputs[0].dtype != ir.DataType.UINT16:
        return x
    return b.binary("FLOOR_MOD", x, b.constant(np.array([1 << 16], np.int32)))


@lower("Div", since=7)
def div(b: Builder, A: Value, B: Value) -> Value:
    """Emit DIV, or MUL by the reciprocal if that is exact: a constant power of two."""
    if B.const is not None and B.dtype == "float32":
        with np.errstate(divide="ignore", over="ignore"):
            mantissa = np.frexp(B.const)[0]
            inverse = (1.0 / np.asarray(B.const, np.float32)).astype(np.float32)
        if np.all(np.abs(mantissa) == 0.5) and np.isfinite(inverse).all():
            return b.binary("MUL", A, b.constant(inverse))
    return b.binary("DIV", A, B)


@lower("Mean", since=8)
def mean_of(b: Builder, *data_0: Value) -> Value:
    """Emit a chain of ADD, then MUL."""
    return b.binary("MUL", _variadic("ADD", b, *data_0), b.scalar(1.0 / len(data_0)))


@lower("Pow", since=7)
def power(b: Builder, X: Value, Y: Value) -> Value:
    """Emit POW, or SQUARE, SQRT, RSQRT or products for constant exponents that allow them."""
    exponent = scalar_exponent(Y, X.rank)
    if X.dtype == "float32" and exponent is not None:
        if exponent == 1.0:
            return X
        if exponent == 2.0:
            return b.unary("SQUARE", X)
        if exponent == 3.0:
            return b.binary("MUL", b.unary("SQUARE", X), X)
        if exponent == 0.5:
            return b.unary("SQRT", X)
        if exponent == -0.5:
            return b.unary("RSQRT", X)
        if exponent == -1.0:
            return reciprocal(b, X)
    return b.binary("POW", X, to_dtype(b, Y, X.dtype))


@lower("Reciprocal", since=6)
def reciprocal(b: Builder, X: Value) -> Value:
    """1 / x."""
    return b.binary("DIV", b.scalar(1.0), X)


@lower("Mod", since=13)
def mod(b: Builder, A: Value, B: Value, *, fmod: int = 0) -> Value:
    """Emit the remainder. fmod=0: FLOOR_MOD, the divisor's sign. fmod=1: the dividend's sign, as in C."""
    if not fmod:
        return b.binary("FLOOR_MOD", A, B)
    size = b.binary("FLOOR_MOD", absolute(b, A), absolute(b, B))
    negative = b.elementwise("LESS", [A, b.constant(np.zeros(1, np.dtype(A.dtype)))], "bool")
    return b.elementwise("SELECT_V2", [negative, b.unary("NEG", size), size])


def absolute(b: Builder, x: Value) -> Value:
    """Compute the absolute value; TFLite's ABS accepts only floats."""
    return b.unary("ABS", x) if x.dtype == "float32" else b.binary("MAXIMUM", x, b.unary("NEG", x))


@lower("Erf", since=13)
def erf(b: Builder, input: Value) -> Value:
    """1 - poly(t) * exp(-x^2), t = 1 / (1 + p |x|), with the sign of x: error at most 1.5e-7.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. TFLite has no erf; Gelu has an operator
    of its own.
    """
    size = b.unary("ABS", input)
    t = reciprocal(b, b.binary("ADD", b.binary("MUL", size, b.scalar(0.3275911)), b.scalar(1.0)))
    poly = b.binary("MUL", t, b.scalar(1.061405429))
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = b.binary("MUL", b.binary("ADD", poly, b.scalar(coefficient)), t)
    tail = b.binary("MUL", poly, b.unary("EXP", b.unary("NEG", b.unary("SQUARE", input))))
    return b.binary("MUL", b.unary("SIGN", input), b.binary("SUB", b.scalar(1.0), tail))


@lower.family({"Cosh": "ADD", "Sinh": "SUB"}, since=9, doc="{}(exp(x), exp(-x)) / 2.")
def _hyperbolic(code: str, b: Builder, input: Value) -> Value:
    both = b.binary(code, b.unary("EXP", input), b.unary("EXP", b.unary("NEG", input)))
    return b.binary("MUL", both, b.scalar(0.5))


@lower("Tan", since=7)
def tan(b: Builder, input: Value) -> Value:
    """sin / cos."""
    return b.binary("DIV", b.unary("SIN", input), b.unary("COS", input))


def to_dtype(b: Builder, x: Value, dtype: str) -> Value:
    """Convert ``x`` to another stored element type by CAST; a constant is converted here."""
    return b.cast(x, dtype)


@lower("Cast", since=13)
def cast(b: Builder, input: Value, *, to: int) -> Value:
    """Cast between float32, bool and integers up to 32 bits; int64 is stored as int32."""
    target = ir.DataType(to)
    if target not in STORED:
        raise unsupported_type(f"it casts to {target.name}", "TFLite")
    dtype = STORED[target]
    if dtype == "bool" and input.dtype != "bool" and input.const is None:
        # TFLite's CAST to bool of a fraction goes through an integer on some runtimes; comparing does not.
        return b.elementwise("NOT_EQUAL", [input, b.constant(np.zeros(1, np.dtype(input.dtype)))], "bool")
    if dtype == "float32" and input.dtype == "uint8" and b.declared(input, BYTES) == BYTES:
        return b.real(replace(input, quantization=BYTES))  # XNNPACK has DEQUANTIZE, and no CAST
    return wrapped_16(b, to_dtype(b, input, dtype))


@lower("CastLike", since=15)
def cast_like(b: Builder, input: Value, target_type: Value) -> Value:
    """Cast to the element type of another value."""
    return to_dtype(b, input, b.out_dtype())


@lower("BatchNormalization", since=15)
def batch_normalization(
    b: Builder, X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, *, epsilon: float
) -> Value:
    """Emit MUL and ADD, if it was not folded into a convolution; inference only."""
    factors = batch_norm_factors(X.rank, scale, B, input_mean, input_var, epsilon)
    if factors is None:
        column = (X.shape[1], *(1,) * (X.rank - 2))
        scale_, beta_, mean_, variance_ = (b.reshape(v, column) for v in (scale, B, input_mean, input_var))
        factor_ = b.binary("MUL", scale_, b.unary("RSQRT", b.binary("ADD", variance_, b.scalar(epsilon))))
        return b.binary("ADD", b.binary("MUL", b.binary("SUB", X, mean_), factor_), beta_)
    factor, offset = factors
    return b.binary("ADD", b.binary("MUL", X, b.constant(factor)), b.constant(offset))


@lower("Dropout", since=13)
@lower("Identity", since=1)
def identity_op(b: Builder, input: Value) -> Value:
    """Return the input; no operator is emitted."""
    return input
