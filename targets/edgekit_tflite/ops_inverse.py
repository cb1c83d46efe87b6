"""Inverse trigonometric and hyperbolic functions, by the polynomials of Cephes.

S. L. Moshier, Methods and Programs for Mathematical Functions (asinf, atanf, asinhf, acoshf, atanhf):
relative error below 3e-7 over the whole range. Where two formulas meet, both are computed and SELECT_V2
picks one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

from edgekit_tflite.builder import Builder, Value, lower
from edgekit_tflite.ops_math import reciprocal

ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
ASINH = (2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1)
ACOSH = (1.7596881071e-3, -7.5272886713e-3, 2.6454905019e-2, -1.1784741703e-1, 1.4142135263)
ATANH = (1.81740078349e-1, 8.24370301058e-2, 1.46691431730e-1, 1.99782164500e-1, 3.33337300303e-1)


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate a polynomial by Horner's rule; coefficients start at the highest power."""
    result = b.binary("MUL", x, b.scalar(coefficients[0]))
    for coefficient in coefficients[1:-1]:
        result = b.binary("MUL", b.binary("ADD", result, b.scalar(coefficient)), x)
    return b.binary("ADD", result, b.scalar(coefficients[-1]))


def _odd(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Compute x + x^3 * polynomial(x^2)."""
    square = b.unary("SQUARE", x)
    return b.binary(
        "ADD", b.binary("MUL", b.binary("MUL", _polynomial(b, square, coefficients), square), x), x
    )


def _select(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    return b.elementwise("SELECT_V2", [condition, x, y])


def _above(b: Builder, x: Value, bound: float) -> Value:
    return b.elementwise("GREATER", [x, b.scalar(bound)], "bool")


def _asin_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the mask |x| > 0.5, and asin(|x|), or asin(sqrt((1 - |x|) / 2)) within the mask."""
    size = b.unary("ABS", x)
    large = _above(b, size, 0.5)
    half = b.binary("MUL", b.binary("SUB", b.scalar(1.0), size), b.scalar(0.5))
    return large, _odd(b, _select(b, large, b.unary("SQRT", half), size), ASIN)


@lower("Asin", since=7)
def asin(b: Builder, input: Value) -> Value:
    """Emit a polynomial up to 0.5, pi / 2 - 2 asin(sqrt((1 - x) / 2)) above."""
    large, part = _asin_parts(b, input)
    folded = b.binary("SUB", b.scalar(pi / 2), b.binary("MUL", part, b.scalar(2.0)))
    return b.binary("MUL", b.unary("SIGN", input), _select(b, large, folded, part))


@lower("Acos", since=7)
def acos(b: Builder, input: Value) -> Value:
    """pi / 2 - asin(x) up to 0.5, 2 asin(sqrt((1 - x) / 2)) above, pi less that below -0.5."""
    large, part = _asin_parts(b, input)
    twice = b.binary("MUL", part, b.scalar(2.0))
    negative = b.elementwise("LESS", [input, b.scalar(0.0)], "bool")
    outer = _select(b, negative, b.binary("SUB", b.scalar(pi), twice), twice)
    inner = b.binary("SUB", b.scalar(pi / 2), b.binary("MUL", b.unary("SIGN", input), part))
    return _select(b, large, outer, inner)


@lower("Atan", since=7)
def atan(b: Builder, input: Value) -> Value:
    """Emit a polynomial below tan(pi / 8), pi / 4 + atan((x - 1) / (x + 1)) and pi / 2 - atan(1 / x)
    above."""
    size = b.unary("ABS", input)
    large, middle = _above(b, size, 2.414213562373095), _above(b, size, 0.4142135623730950)
    one = b.scalar(1.0)
    near_one = b.binary("DIV", b.binary("SUB", size, one), b.binary("ADD", size, one))
    inverse = b.unary("NEG", reciprocal(b, b.binary("MAXIMUM", size, one)))
    reduced = _select(b, large, inverse, _select(b, middle, near_one, size))
    start = _select(b, large, b.scalar(pi / 2), _select(b, middle, b.scalar(pi / 4), b.scalar(0.0)))
    return b.binary("MUL", b.unary("SIGN", input), b.binary("ADD", start, _odd(b, reduced, ATAN)))


@lower("Asinh", since=9)
def asinh(b: Builder, input: Value) -> Value:
    """Emit a polynomial up to 0.5, log(x + sqrt(x^2 + 1)) above."""
    size = b.unary("ABS", input)
    root = b.unary("SQRT", b.binary("ADD", b.unary("SQUARE", size), b.scalar(1.0)))
    log = b.unary("LOG", b.binary("ADD", size, root))
    small = _odd(b, b.binary("MINIMUM", size, b.scalar(0.5)), ASINH)
    return b.binary("MUL", b.unary("SIGN", input), _select(b, _above(b, size, 0.5), log, small))


@lower("Acosh", since=9)
def acosh(b: Builder, input: Value) -> Value:
    """sqrt(x - 1) * polynomial(x - 1) up to 1.5, log(x + sqrt((x - 1) (x + 1))) above."""
    excess = b.binary("SUB", input, b.scalar(1.0))
    root = b.unary("SQRT", b.binary("MUL", excess, b.binary("ADD", input, b.scalar(1.0))))
    log = b.unary("LOG", b.binary("ADD", input, root))
    near = b.binary("MUL", b.unary("SQRT", excess), _polynomial(b, excess, ACOSH))
    return _select(b, _above(b, excess, 0.5), log, near)


@lower("Atanh", since=9)
def atanh(b: Builder, input: Value) -> Value:
    """Emit a polynomial up to 0.5, log((1 + x) / (1 - x)) / 2 above."""
    size, one = b.unary("ABS", input), b.scalar(1.0)
    ratio = b.binary("DIV", b.binary("ADD", one, size), b.binary("SUB", one, size))
    log = b.binary("MUL", b.unary("LOG", ratio), b.scalar(0.5))
    small = _odd(b, b.binary("MINIMUM", size, b.scalar(0.5)), ATANH)
    return b.binary("MUL", b.unary("SIGN", input), _select(b, _above(b, size, 0.5), log, small))
