"""Values at the ends of the range: where a formula that is right on paper overflows or cancels."""

from __future__ import annotations

from tests.conformance.case import Case, Range

LARGE: Range = (-200.0, 200.0)
OFFSET: Range = (1000.0, 1001.0)
"""A small spread on a large mean: E[x^2] - E[x]^2 loses all its digits here."""
OFFSET_SNR_DB = 50.0
"""The mean of such values is known to 6e-5 in float32, 2e-4 of their spread: 74 dB at best."""

SATURATING = [
    "Sigmoid", "Tanh", "Softplus", "Softsign", "Mish", "Gelu", "Elu", "Selu", "Celu", "HardSwish",
    "HardSigmoid", "Erf", "LogSoftmax", "Softmax",
]  # fmt: skip

CASES = [
    *(Case(f"{op.lower()}_large", "float[3,9] x", f"y = {op}(x)", ranges={"x": LARGE}) for op in SATURATING),
    Case("gelu_tanh_large", "float[3,9] x", 'y = Gelu<approximate="tanh">(x)', ranges={"x": LARGE}),
    Case(
        "silu_large",
        "float[3,9] x",
        "s = Sigmoid(x)\ny = Mul(x, s)",
        ranges={"x": LARGE},
    ),
    Case(
        "silu_division_large",
        "float[3,9] x",
        "n = Neg(x)\ne = Exp(n)\nd = Add(e, one)\ny = Div(x, d)",
        "float one = {1.0}",
        ranges={"x": LARGE},
    ),
    Case(
        "softplus_spelled_large",
        "float[3,9] x",
        "e = Exp(x)\na = Add(e, one)\ny = Log(a)",
        "float one = {1.0}",
        ranges={"x": (-80.0, 80.0)},
    ),
    Case("exp_overflows", "float[3,9] x", "y = Exp(x)", ranges={"x": (60.0, 120.0)}),
    Case("exp_underflows", "float[3,9] x", "y = Exp(x)", ranges={"x": (-300.0, -150.0)}),
    Case("log_of_zero_and_below", "float[9] x", "f = Floor(x)\ny = Log(f)", ranges={"x": (-2.0, 3.0)}),
    Case("sqrt_below_zero", "float[9] x", "y = Sqrt(x)", ranges={"x": (-1.0, 2.0)}),
    Case("reciprocal_of_zero", "float[9] x", "f = Floor(x)\ny = Reciprocal(f)", ranges={"x": (0.0, 3.0)}),
    Case("div_by_zero", "float[9] a, float[9] b", "f = Floor(b)\ny = Div(a, f)", ranges={"b": (0.0, 3.0)}),
    Case("pow_of_negative", "float[2,4] x", "y = Pow(x, e)", "float[4] e = {1.0, 2.0, 3.0, 0.0}"),
    Case("pow_overflows", "float[2,4] x", "y = Pow(x, e)", "float e = {8.0}", ranges={"x": (1e3, 1e6)}),
    Case(
        "logsumexp_large",
        "float[3,9] x",
        "y = ReduceLogSumExp(x, a)",
        "int64[1] a = {1}",
        ranges={"x": LARGE},
    ),
    Case("l2_large", "float[3,9] x", "y = ReduceL2(x, a)", "int64[1] a = {1}", ranges={"x": (-1e15, 1e15)}),
    Case(
        "softmax_masked",
        "float[2,6] x",
        "m = Add(x, k)\ny = Softmax<axis=-1>(m)",
        "float[6] k = {0.0, -1e9, 0.0, -3.4e38, 0.0, 0.0}",
    ),
    *(
        Case(
            f"{name}_large_mean",
            f"float[{shape}] x",
            body,
            weights,
            ranges={"x": OFFSET},
            snr_db=OFFSET_SNR_DB,
        )
        for name, shape, body, weights in (
            ("layer_norm", "2,16", "y = LayerNormalization(x, g)", "float[16] g"),
            ("instance_norm", "1,2,4,4", "y = InstanceNormalization(x, g, b)", "float[2] g, float[2] b"),
            (
                "layer_norm_spelled",
                "2,16",
                "m = ReduceMean(x, a)\nd = Sub(x, m)\np = Pow(d, two)\nv = ReduceMean(p, a)\n"
                "e = Add(v, eps)\ns = Sqrt(e)\ny = Div(d, s)",
                "int64[1] a = {-1}, float two = {2.0}, float eps = {1e-5}",
            ),
        )
    ),
    Case(
        "layer_norm_constant_row",
        "float[2,1] k",
        "x = Expand(k, s)\ny = LayerNormalization(x, g, b)",
        "int64[2] s = {2,8}, float[8] g, float[8] b",
    ),
    # Beyond 2^31 and beyond 2^53: neither int32 nor a way over float holds these.
    *(
        Case(f"{name}_int64_large", "int64[2,5] x", body, weights, ranges={"x": limits})
        for name, body, weights in (
            ("identity", "y = Identity(x)", ""),
            ("add", "y = Add(x, k)", "int64 k = {3}"),
            ("transpose", "y = Transpose(x)", ""),
            ("max", "y = Max(x, k)", "int64 k = {3}"),
        )
        for limits in ((-(2**60), 2**60),)
    ),
    Case(
        "equal_int64_large",
        "int64[9] x",
        "y = Equal(x, k)",
        "int64 k = {4294967296}",
        ranges={"x": (2**32 - 2, 2**32 + 2)},
    ),
    Case(
        "greater_int64_large",
        "int64[9] x",
        "y = Greater(x, k)",
        "int64 k = {5}",
        ranges={"x": (2**32, 2**32 + 9)},
    ),
    Case("mul_int64_large", "int64[9] x", "y = Mul(x, x)", ranges={"x": (2**20, 2**30)}),
    Case(
        "reduce_sum_int64_large",
        "int64[3,9] x",
        "y = ReduceSum(x, a)",
        "int64[1] a = {1}",
        ranges={"x": (2**40, 2**41)},
    ),
    Case("argmax_negative", "float[3,9] x", "y = ArgMax<axis=1>(x)", ranges={"x": (-9.0, -1.0)}),
    Case(
        "cast_large_int32",
        "int32[9] x",
        "f = Cast<to=1>(x)\ny = Cast<to=6>(f)",
        ranges={"x": (-(2**24), 2**24)},
    ),
    Case(
        "max_pool_minus_infinity",
        "float[1,1,4,4] x",
        "l = Log(x)\ny = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(l)",
        ranges={"x": (0.0, 1e-3)},
    ),
    Case(
        "clip_infinite_bounds",
        "float[9] x",
        "y = Clip(x, low, high)",
        "float low = {-3.4028235e38}, float high = {3.4028235e38}",
        ranges={"x": LARGE},
    ),
]
