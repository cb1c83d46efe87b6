"""Elementwise ops: activations with their attributes, arithmetic in every broadcast, logic, Cast."""

from __future__ import annotations

from tests.conformance.case import Case, Range

# name, attributes as they follow the op; the empty row is the default
ACTIVATIONS = [
    ("Relu", [""]),
    ("LeakyRelu", ["", "<alpha=0.2>", "<alpha=0.0>", "<alpha=1.5>", "<alpha=-0.5>"]),
    ("Elu", ["", "<alpha=1.0>", "<alpha=0.3>", "<alpha=2.0>", "<alpha=0.0>"]),
    ("Selu", ["", "<alpha=1.2, gamma=0.7>"]),
    ("Celu", ["", "<alpha=2.0>"]),
    ("ThresholdedRelu", ["", "<alpha=0.4>", "<alpha=0.0>"]),
    ("HardSigmoid", ["", "<alpha=0.16666667, beta=0.5>", "<alpha=0.5, beta=0.6>", "<alpha=1.0, beta=0.0>"]),
    ("HardSwish", [""]),
    ("Gelu", ["", '<approximate="none">', '<approximate="tanh">']),
    ("Mish", [""]),
    ("Softplus", [""]),
    ("Softsign", [""]),
    ("Sigmoid", [""]),
    ("Tanh", [""]),
    ("Shrink", ["", "<bias=0.3, lambd=0.7>", "<bias=0.3, lambd=0.0>"]),
    ("Erf", [""]),
]

POSITIVE: Range = (0.1, 4.0)
UNARY: list[tuple[str, Range]] = [
    ("Abs", (-3, 3)),
    ("Neg", (-3, 3)),
    ("Exp", (-3, 3)),
    ("Log", POSITIVE),
    ("Sqrt", (0, 4)),
    ("Reciprocal", POSITIVE),
    ("Floor", (-4, 4)),
    ("Ceil", (-4, 4)),
    ("Round", (-4, 4)),
    ("Sign", (-2, 2)),
    ("Sin", (-7, 7)),
    ("Cos", (-7, 7)),
    ("Tan", (-1, 1)),
    ("Asin", (-1, 1)),
    ("Acos", (-1, 1)),
    ("Atan", (-4, 4)),
    ("Sinh", (-2, 2)),
    ("Cosh", (-2, 2)),
    ("Asinh", (-4, 4)),
    ("Acosh", (1, 4)),
    ("Atanh", (-0.9, 0.9)),
]

# name, shape of a, shape of b: every direction of broadcasting, with differing ranks and scalars
BROADCASTS = [
    ("same", "1,3,4,5", "1,3,4,5"),
    ("scalar_right", "1,3,4,5", ""),
    ("scalar_left", "", "1,3,4,5"),
    ("one_right", "1,3,4,5", "1"),
    ("channel_right", "1,3,4,5", "3,1,1"),
    ("channel_left", "1,3,1,1", "1,3,4,5"),
    ("row_right", "1,3,4,5", "5"),
    ("column_left", "4,1", "1,3,4,5"),
    ("both_ways", "1,3,1,5", "1,1,4,1"),
    ("batch_grows", "1,3,4,5", "2,1,1,1"),
    ("rank_grows", "4,5", "2,3,1,1"),
]

ARITHMETIC = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"]
DIVISORS: dict[str, dict[str, Range]] = {
    "Div": {"b": (0.5, 2.0)},
    "Pow": {"a": (0.2, 2.0), "b": (-2.0, 2.0)},
}

COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]

CLIPS = [
    ("relu6", "x, low, high", "float low = {0.0}, float high = {6.0}"),
    ("relu1", "x, low, high", "float low = {-1.0}, float high = {1.0}"),
    ("0_1", "x, low, high", "float low = {0.0}, float high = {1.0}"),
    ("odd", "x, low, high", "float low = {-0.7}, float high = {0.9}"),
    ("low_only", "x, low", "float low = {-0.5}"),
    ("zero_low_only", "x, low", "float low = {0.0}"),
    ("high_only", "x, , high", "float high = {0.5}"),
    ("six_high_only", "x, , high", "float high = {6.0}"),
    ("none", "x", ""),
    ("crossed", "x, low, high", "float low = {1.0}, float high = {-1.0}"),
]

CASTS = [
    ("float", "int32", (-9.9, 9.9)),
    ("float", "int64", (-9.9, 9.9)),
    ("float", "bool", None),
    ("float", "float16", None),
    ("float", "uint8", (0.0, 200.0)),
    ("float", "int8", (-100.0, 100.0)),
    ("float", "float", None),
    ("float", "double", None),
    ("int32", "float", None),
    ("int64", "float", None),
    ("bool", "float", None),
    ("uint8", "float", (0, 256)),
    ("int8", "float", (-128, 128)),
    ("float16", "float", None),
    ("int64", "int32", None),
    ("int32", "int64", None),
    ("int64", "bool", None),
    ("bool", "int32", None),
    ("bool", "int64", None),
    ("uint8", "int32", (0, 256)),
    ("double", "float", None),
]
CAST_TO = {
    "float": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "double": 11,
}

PRELU_SLOPES = [
    ("scalar", ""),
    ("one", "1"),
    ("channel", "3,1,1"),
    ("row", "5"),
    ("full", "3,4,5"),
    ("batched_channel", "1,3,1,1"),
    ("plane", "4,5"),
    ("same_rank_ones", "1,1,1,1"),
]


def _typed(shape: str, dtype: str, name: str) -> str:
    return f"{dtype}[{shape}] {name}" if shape else f"{dtype} {name}"


CASES = [
    *(
        Case(
            f"{op.lower()}{f'_{i}' if i else ''}",
            "float[1,3,4,5] x",
            f"y = {op}{attributes}(x)",
            ranges={"x": (-4, 4)},
        )
        for op, forms in ACTIVATIONS
        for i, attributes in enumerate(forms)
    ),
    *(Case(op.lower(), "float[2,3,5] x", f"y = {op}(x)", ranges={"x": limits}) for op, limits in UNARY),
    *(
        Case(
            f"{op.lower()}_{shape.count(',') + 1 if shape else 0}d",
            _typed(shape, "float", "x"),
            f"y = {op}(x)",
        )
        for op in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Gelu")
        for shape in ("", "7", "3,5", "2,2,2,2,3")
    ),
    *(
        Case(
            f"round_half_{i}",
            "float[4] x",
            "h = Floor(x)\nk = Add(h, half)\ny = Round(k)",
            "float half = {0.5}",
            ranges={"x": limits},
        )
        for i, limits in enumerate([(0.0, 5.0), (-5.0, 0.0)])
    ),
    *(
        Case(f"clip_{name}", "float[1,3,4,5] x", f"y = Clip({operands})", weights, ranges={"x": (-8, 8)})
        for name, operands, weights in CLIPS
    ),
    Case("clip_int32", "int32[2,5] x", "y = Clip(x, low, high)", "int32 low = {-2}, int32 high = {3}"),
    Case("clip_int64", "int64[2,5] x", "y = Clip(x, low, high)", "int64 low = {-2}, int64 high = {3}"),
    Case("clip_bound_is_input", "float[2,5] x, float low", "y = Clip(x, low)"),
    *(
        Case(f"prelu_{name}", "float[1,3,4,5] x", "y = PRelu(x, slope)", _typed(shape, "float", "slope"))
        for name, shape in PRELU_SLOPES
    ),
    Case("prelu_2d", "float[4,5] x", "y = PRelu(x, slope)", "float[5] slope"),
    Case("prelu_3d", "float[2,4,5] x", "y = PRelu(x, slope)", "float[4,1] slope"),
    Case("prelu_slope_is_input", "float[1,3,4,5] x, float[3,1,1] slope", "y = PRelu(x, slope)"),
    # Two inputs: nothing is constant.
    *(
        Case(
            f"{op.lower()}_{name}",
            f"{_typed(a, 'float', 'a')}, {_typed(b, 'float', 'b')}",
            f"y = {op}(a, b)",
            ranges=DIVISORS.get(op, {}),
        )
        for op in ARITHMETIC
        for name, a, b in BROADCASTS
        if op in ("Add", "Sub") or name in ("same", "scalar_right", "channel_left", "both_ways", "rank_grows")
    ),
    # A constant on either side.
    *(
        Case(
            f"{op.lower()}_const_{side}_{name}",
            f"float[1,3,4,5] {x}",
            f"y = {op}(a, b)",
            _typed(shape, "float", k),
            ranges=DIVISORS.get(op, {}),
        )
        for op in ("Add", "Sub", "Mul", "Div")
        for side, x, k in (("right", "a", "b"), ("left", "b", "a"))
        for name, shape in (
            ("scalar", ""),
            ("channel", "3,1,1"),
            ("row", "5"),
            ("grows", "2,3,4,5"),
            ("more_ranks", "1,1,1,1,1"),
        )
    ),
    *(
        Case(
            f"{op.lower()}_{dtype}",
            f"{dtype}[2,3,4] a, {dtype}[3,1] b",
            f"y = {op}(a, b)",
            ranges={"b": (1, 6)},
        )
        for op in ("Add", "Sub", "Mul", "Max", "Min")
        for dtype in ("int32", "int64")
    ),
    *(
        Case(
            f"div_{dtype}",
            f"{dtype}[2,3,4] a, {dtype}[4] b",
            "y = Div(a, b)",
            ranges={"a": (-20, 20), "b": (1, 6)},
        )
        for dtype in ("int32", "int64")
    ),
    Case("mul_square", "float[2,3,4] x", "y = Mul(x, x)"),
    Case("sub_itself", "float[2,3,4] x", "y = Sub(x, x)"),
    *(
        Case(
            f"pow_const_{name}",
            "float[2,3,4] x",
            "y = Pow(x, e)",
            f"float e = {{{value}}}",
            ranges={"x": limits},
        )
        for name, value, limits in (
            ("square", "2.0", (-2, 2)),
            ("cube", "3.0", (-2, 2)),
            ("half", "0.5", (0, 4)),
            ("minus_one", "-1.0", (0.3, 2)),
            ("minus_half", "-0.5", (0.3, 2)),
            ("one", "1.0", (-2, 2)),
            ("zero", "0.0", (-2, 2)),
            ("odd", "1.7", (0.1, 2)),
        )
    ),
    Case("pow_int_exponent", "float[2,3,4] x", "y = Pow(x, e)", "int64 e = {2}"),
    Case("pow_const_base", "float[2,3,4] x", "y = Pow(k, x)", "float k = {2.0}"),
    *(
        Case(
            f"{op.lower()}_of_{count}",
            ", ".join(f"float[2,3] x{i}" for i in range(count)),
            f"y = {op}({', '.join(f'x{i}' for i in range(count))})",
        )
        for op in ("Sum", "Mean", "Max", "Min")
        for count in (1, 2, 3, 4)
    ),
    Case("sum_broadcast", "float[2,3,4] a, float[4] b, float[3,1] c", "y = Sum(a, b, c)"),
    Case("mean_broadcast", "float[2,3,4] a, float[4] b, float[3,1] c", "y = Mean(a, b, c)"),
    *(
        Case(
            f"mod_{name}",
            f"{dtype}[2,3,4] a, {dtype}[4] b",
            f"y = Mod{attribute}(a, b)",
            ranges={"a": (-20, 20), "b": limits},
        )
        for name, dtype, attribute, limits in (
            ("int32", "int32", "", (1, 6)),
            ("int64_negative", "int64", "", (-6, -1)),
            ("fmod", "float", "<fmod=1>", (1, 6)),
            ("fmod_int", "int32", "<fmod=1>", (1, 6)),
        )
    ),
    *(
        Case(
            f"{op.lower()}_{name}",
            f"{_typed(a, dtype, 'a')}, {_typed(b, dtype, 'b')}",
            f"y = {op}(a, b)",
            ranges={"a": (-2, 2), "b": (-2, 2)},
        )
        for op in COMPARISONS
        for name, dtype, a, b in (
            ("float", "float", "2,3,4", "2,3,4"),
            ("float_broadcast", "float", "3,1", "2,1,4"),
            ("int32", "int32", "2,3,4", "4"),
            ("int64_scalar", "int64", "2,3,4", ""),
        )
    ),
    Case("equal_bool", "bool[2,3] a, bool[2,3] b", "y = Equal(a, b)"),
    *(
        Case(f"{op.lower()}_{name}", f"{_typed(a, 'bool', 'a')}, {_typed(b, 'bool', 'b')}", f"y = {op}(a, b)")
        for op in ("And", "Or", "Xor")
        for name, a, b in (("same", "2,3,4", "2,3,4"), ("broadcast", "3,1", "2,1,4"), ("scalar", "2,3", ""))
    ),
    Case("not", "bool[2,3,4] x", "y = Not(x)"),
    Case("not_and", "bool[2,3,4] a, bool[2,3,4] b", "c = And(a, b)\ny = Not(c)"),
    *(
        Case(
            f"where_{name}",
            f"bool[{c}] c, {_typed(a, dtype, 'a')}, {_typed(b, dtype, 'b')}",
            "y = Where(c, a, b)",
        )
        for name, c, a, b, dtype in (
            ("same", "2,3,4", "2,3,4", "2,3,4", "float"),
            ("scalar_else", "2,3,4", "2,3,4", "", "float"),
            ("scalar_then", "2,3,4", "", "2,3,4", "float"),
            ("broadcast", "3,1", "2,1,4", "4", "float"),
            ("mask_grows", "4", "2,3,4", "1", "float"),
            ("int64", "2,3", "2,3", "2,3", "int64"),
            ("int32_5d", "1,2,1,3,1", "2,2,2,3,2", "1", "int32"),
        )
    ),
    *(
        Case(
            f"cast_{a}_to_{b}",
            f"{a}[2,3,4] x",
            f"y = Cast<to={CAST_TO[b]}>(x)",
            ranges={"x": limits} if limits else {},
        )
        for a, b, limits in CASTS
    ),
    *(Case(f"abs_{dtype}", f"{dtype}[2,5] x", "y = Abs(x)") for dtype in ("int32", "int64")),
    *(Case(f"neg_{dtype}", f"{dtype}[2,5] x", "y = Neg(x)") for dtype in ("int32", "int64")),
    Case("sign_int32", "int32[2,5] x", "y = Sign(x)"),
    Case("relu_int32", "int32[2,5] x", "y = Relu(x)"),
    Case("is_nan", "float[2,5] x", "r = Log(x)\ny = IsNaN(r)"),
    Case("is_inf", "float[2,5] x", "z = Floor(x)\nr = Reciprocal(z)\ny = IsInf(r)", ranges={"x": (0, 3)}),
    Case("bitwise_and", "int32[2,5] a, int32[5] b", "y = BitwiseAnd(a, b)"),
]
