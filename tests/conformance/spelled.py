"""Functions that exporters spell out in primitives, lookalikes of them, and arithmetic on shapes."""

from __future__ import annotations

from tests.conformance.case import Case

CASES = [
    Case(
        "swish_spelled_division",
        "float[2,3,4] x",
        "n = Neg(x)\ne = Exp(n)\nd = Add(e, one)\ny = Div(x, d)",
        "float one = {1.0}",
    ),
    Case(
        "gelu_spelled_erf",
        "float[2,3,4] x",
        "d = Div(x, root)\ne = Erf(d)\na = Add(e, one)\nm = Mul(x, a)\ny = Mul(m, half)",
        "float root = {1.4142135}, float one = {1.0}, float half = {0.5}",
    ),
    Case(
        "gelu_spelled_erf_half_first",
        "float[2,3,4] x",
        "h = Mul(x, half)\nd = Mul(x, root)\ne = Erf(d)\na = Add(one, e)\ny = Mul(h, a)",
        "float root = {0.70710677}, float one = {1.0}, float half = {0.5}",
    ),
    Case(
        "gelu_spelled_tanh",
        "float[2,3,4] x",
        "c = Pow(x, three)\nk = Mul(c, k0)\ns = Add(x, k)\nm = Mul(s, k1)\nt = Tanh(m)\n"
        "a = Add(t, one)\nh = Mul(x, half)\ny = Mul(h, a)",
        "float three = {3.0}, float k0 = {0.044715}, float k1 = {0.7978846}, "
        "float one = {1.0}, float half = {0.5}",
    ),
    Case(
        "gelu_like_wrong_constant",
        "float[2,3,4] x",
        "d = Div(x, root)\ne = Erf(d)\na = Add(e, one)\nm = Mul(x, a)\ny = Mul(m, half)",
        "float root = {1.5}, float one = {1.0}, float half = {0.5}",
    ),
    Case(
        "hardswish_like_wrong_bounds",
        "float[2,3,4] x",
        "a = Add(x, three)\nk = Clip(a, low, high)\nm = Mul(x, k)\ny = Div(m, six)",
        "float three = {3.0}, float low = {0.0}, float high = {5.0}, float six = {6.0}",
        ranges={"x": (-5, 5)},
    ),
    Case(
        "hardswish_spelled_hardsigmoid",
        "float[2,3,4] x",
        "h = HardSigmoid<alpha=0.16666667, beta=0.5>(x)\ny = Mul(h, x)",
        ranges={"x": (-5, 5)},
    ),
    Case(
        "hardsigmoid_not_hardswish",
        "float[2,3,4] x",
        "h = HardSigmoid<alpha=0.2, beta=0.5>(x)\ny = Mul(x, h)",
        ranges={"x": (-5, 5)},
    ),
    Case("mish_spelled", "float[2,3,4] x", "s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)"),
    Case(
        "softplus_spelled", "float[2,3,4] x", "e = Exp(x)\na = Add(e, one)\ny = Log(a)", "float one = {1.0}"
    ),
    Case(
        "constants_only",
        "float[2,3] x",
        "k = Add(a, b)\nm = Mul(k, k)\ny = Sub(x, m)",
        "float[2,3] a, float[3] b",
    ),
    Case(
        "shape_folded",
        "float[2,3,4] x",
        "s = Shape(x)\nl = Gather<axis=0>(s, i)\nf = Cast<to=1>(l)\ny = Div(x, f)",
        "int64 i = {2}",
    ),
    Case("size_folded", "float[2,3,4] x", "s = Size(x)\nf = Cast<to=1>(s)\ny = Div(x, f)"),
]
