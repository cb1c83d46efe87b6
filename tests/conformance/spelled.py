"""Functions that exporters spell out in primitives, lookalikes of them, and arithmetic on shapes."""

from __future__ import annotations

from tests.conformance.case import Case

CASES = [
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
