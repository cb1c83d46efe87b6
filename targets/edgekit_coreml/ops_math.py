"""Arithmetic on each element: binary operators, roots, powers, rounding, trigonometry, casts."""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.activation_parameters import batch_norm_factors, scalar_exponent
from edgekit.compiler.lowering.quantization_parameters import unsupported_type
from edgekit.diagnostics import Inexpressible
from edgekit_coreml.builder import Builder, Value, lower
from edgekit_coreml.ops_logic import masked, select
from edgekit_coreml.values import STORED

UNARY = {"Abs": "abs", "Acos": "acos", "Asin": "asin", "Atan": "atan", "Atanh": "atanh", "Ceil": "ceil",
         "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Round": "round",
         "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan"}  # fmt: skip


@lower.family({**UNARY, "Log": "log"}, since=6, doc="{}.")
def _unary(mil: str, b: Builder, X: Value) -> Value:
    # MIL adds an epsilon to the operand of a log unless it is set not to (1e-45).
    return b.unary(mil, X, epsilon=0.0) if mil == "log" else b.unary(mil, X)


@lower.family({"Max": "maximum", "Min": "minimum", "Sum": "add"}, since=8, doc="Emit a chain of {}.")
def _variadic(mil: str, b: Builder, *data_0: Value) -> Value:
    result = data_0[0]
    for value in data_0[1:]:
        result = b.binary(mil, masked(b, result), masked(b, value))
    return result


@lower("Add", since=7)
def add(b: Builder, A: Value, B: Value) -> Value:
    """add, broadcast; a mask stays finite in float16."""
    return b.binary("add", masked(b, A), masked(b, B))


@lower("Sub", since=7)
def sub(b: Builder, A: Value, B: Value) -> Value:
    """sub, broadcast."""
    return b.binary("sub", A, B)


@lower("Mul", since=7)
def mul(b: Builder, A: Value, B: Value) -> Value:
    """mul, broadcast; x * sigmoid(x) is silu."""
    for x, gate in ((A, B), (B, A)):
        op = getattr(gate.var, "op", None)
        if op is not None and op.op_type == "sigmoid" and op.inputs["x"] is x.var and x.dtype == b.compute:
            return b.unary("silu", x)
    return b.binary("mul", A, B)


@lower("Neg", since=6)
def neg(b: Builder, X: Value) -> Value:
    """x * -1."""
    return b.binary("mul", X, b.scalar(-1, X.dtype))


@lower("Div", since=7)
def div(b: Builder, A: Value, B: Value) -> Value:
    """real_div; integers divide towards zero, as ONNX does and floor_div does not."""
    if A.is_float:
        return b.binary("real_div", A, B)
    size = b.binary("floor_div", b.unary("abs", A), b.unary("abs", B))
    return b.binary("mul", b.binary("mul", b.unary("sign", A), b.unary("sign", B)), size)


@lower("Mean", since=8)
def mean_of(b: Builder, *data_0: Value) -> Value:
    """Emit a chain of add, then mul."""
    return b.binary("mul", _variadic("add", b, *data_0), b.scalar(1.0 / len(data_0)))


@lower("Pow", since=7)
def power(b: Builder, X: Value, Y: Value) -> Value:
    """Emit pow, or products and roots for constant exponents that allow them."""
    exponent = scalar_exponent(Y, X.rank)
    if X.is_float and exponent is not None:
        if exponent == 1.0:
            return X
        if exponent == 2.0:
            return b.binary("mul", X, X)
        if exponent == 3.0:
            return b.binary("mul", b.binary("mul", X, X), X)
        if exponent == 0.5:
            return b.unary("sqrt", X)
        if exponent == -0.5:
            return b.unary("rsqrt", X, epsilon=0.0)
        if exponent == -1.0:
            return reciprocal(b, X)
    return b.binary("pow", X, b.cast(Y, X.dtype))


@lower("Reciprocal", since=6)
def reciprocal(b: Builder, X: Value) -> Value:
    """inverse, without its epsilon."""
    return b.unary("inverse", X, epsilon=0.0)


@lower("Mod", since=13)
def mod(b: Builder, A: Value, B: Value, *, fmod: int = 0) -> Value:
    """Emit the remainder. fmod=0: mod, the divisor's sign. fmod=1: the dividend's sign, as in C."""
    if not fmod:
        return b.binary("mod", A, B)
    size = b.binary("mod", b.unary("abs", A), b.unary("abs", B))
    return select(b, b.binary("less", A, b.scalar(0, A.dtype)), neg(b, size), size)


@lower("Asinh", since=9)
def asinh(b: Builder, input: Value) -> Value:
    """sign(x) * log(|x| + sqrt(x^2 + 1))."""
    size = b.unary("abs", input)
    root = b.unary("sqrt", b.binary("add", b.binary("mul", size, size), b.scalar(1.0)))
    return b.binary("mul", b.unary("sign", input), b.unary("log", b.binary("add", size, root), epsilon=0.0))


@lower("Acosh", since=9)
def acosh(b: Builder, input: Value) -> Value:
    """log(x + sqrt(x^2 - 1))."""
    root = b.unary("sqrt", b.binary("sub", b.binary("mul", input, input), b.scalar(1.0)))
    return b.unary("log", b.binary("add", input, root), epsilon=0.0)


WRAPPED = {ir.DataType.INT8: 8, ir.DataType.UINT8: 8}
"""Narrow integers -> their bits."""


@lower("Cast", since=13)
def cast(b: Builder, input: Value, *, to: int) -> Value:
    """Cast between floats, bool and integers; int64 is stored as int32."""
    target = ir.DataType(to)
    if target not in STORED:
        raise unsupported_type(f"it casts to {target.name}", "Core ML")
    wraps = target in WRAPPED and input.dtype == "int32" and input.const is None
    x = _low_bits(b, input, WRAPPED[target], target == ir.DataType.INT8) if wraps else input
    return to_dtype(b, x, b.out_dtype())


def _low_bits(b: Builder, x: Value, bits: int, signed: bool) -> Value:
    """Keep the low bits of an integer in two's complement, as ONNX does."""
    size, half = b.scalar(2**bits, "int32"), b.scalar(2 ** (bits - 1), "int32")
    if not signed:
        return b.binary("mod", x, size)
    return b.binary("sub", b.binary("mod", b.binary("add", x, half), size), half)


@lower("CastLike", since=15)
def cast_like(b: Builder, input: Value, target_type: Value) -> Value:
    """Cast to the element type of another value."""
    return to_dtype(b, input, b.out_dtype())


def to_dtype(b: Builder, x: Value, dtype: str) -> Value:
    """Convert ``x`` to another element type, by ONNX's rules."""
    if x.dtype == dtype or (x.is_float and dtype == "float32"):
        return x
    if dtype == "bool" and x.const is None:
        # The cast to bool of a fraction goes through an integer on some devices; comparing does not.
        return b.binary("not_equal", x, b.scalar(0, x.dtype))
    return b.cast(x, dtype)


@lower("BatchNormalization", since=15)
def batch_normalization(
    b: Builder, X: Value, scale: Value, B: Value, input_mean: Value, input_var: Value, *, epsilon: float
) -> Value:
    """Emit mul and add, if it was not folded into a convolution; inference only."""
    factors = batch_norm_factors(X.rank, scale, B, input_mean, input_var, epsilon)
    if factors is None:
        raise Inexpressible("the model computes its statistics; they must be constant")
    factor, offset = factors
    return b.binary("add", b.binary("mul", X, b.constant(factor)), b.constant(offset))


@lower("Dropout", since=13)
@lower("Identity", since=1)
def identity_op(b: Builder, input: Value) -> Value:
    """Return the input; no operator is emitted."""
    return input
