"""Normalizations, as ops and spelled out in primitives."""

from __future__ import annotations

from tests.conformance.case import Case, Range

POSITIVE: dict[str, Range] = {"var": (0.3, 2.0)}
BATCHNORM = "float[{c}] scale, float[{c}] shift, float[{c}] mean, float[{c}] var"

LAYERS = [
    ("defaults", "2,3,8", "8", "", True),
    ("no_bias", "2,3,8", "8", "", False),
    ("axis1", "2,3,8", "3,8", "<axis=1>", True),
    ("axis_minus2", "2,3,4,5", "4,5", "<axis=-2>", True),
    ("axis0", "3,4", "3,4", "<axis=0>", True),
    ("epsilon", "2,3,8", "8", "<epsilon=0.1>", True),
    ("epsilon_zero", "2,3,8", "8", "<epsilon=0.0>", True),
    ("2d", "3,8", "8", "", True),
    ("4d_last", "1,3,4,8", "8", "", True),
    ("axis1_4d", "1,3,4,5", "3,4,5", "<axis=1>", True),
    ("one_row", "1,1,8", "8", "", True),
]


def _layer_norm(name: str, shape: str, weight: str, attributes: str, bias: bool) -> Case:
    more = f", float[{weight}] b" if bias else ""
    return Case(
        f"layer_norm_{name}",
        f"float[{shape}] x",
        f"y = LayerNormalization{attributes}(x, g{', b' if bias else ''})",
        f"float[{weight}] g{more}",
    )


CASES = [
    *(
        Case(
            f"batch_norm_{n}",
            f"float[{x}] x",
            f"y = BatchNormalization{a}(x, scale, shift, mean, var)",
            BATCHNORM.format(c=x.split(",")[1]),
            ranges=POSITIVE,
        )
        for n, x, a in (
            ("4d", "1,3,4,5", ""),
            ("epsilon", "1,3,4,5", "<epsilon=0.1>"),
            ("momentum", "2,3,4,5", "<momentum=0.1>"),
            ("2d", "4,6", ""),
            ("3d", "2,4,5", ""),
            ("5d", "1,2,3,2,3", ""),
            ("batch_is_channels", "3,3,3,3", ""),
        )
    ),
    Case(
        "batch_norm_after_concat",
        "float[1,2,4,4] a, float[1,1,4,4] b",
        "x = Concat<axis=1>(a, b)\nn = BatchNormalization(x, scale, shift, mean, var)\n"
        "r = Relu(n)\ny = Conv(r, w)",
        BATCHNORM.format(c=3) + ", float[4,3,1,1] w",
        ranges=POSITIVE,
    ),
    *(_layer_norm(*row) for row in LAYERS),
    Case(
        "layer_norm_all_outputs",
        "float[2,3,8] x",
        "y, m, i = LayerNormalization(x, g, b)",
        "float[8] g, float[8] b",
        outputs="y, m, i",
    ),
    Case("layer_norm_weight_is_input", "float[2,3,8] x, float[8] g", "y = LayerNormalization(x, g)"),
    Case(
        "layer_norm_spelled",
        "float[2,3,8] x",
        "m = ReduceMean(x, a)\nd = Sub(x, m)\np = Pow(d, two)\nv = ReduceMean(p, a)\n"
        "e = Add(v, eps)\ns = Sqrt(e)\nn = Div(d, s)\nk = Mul(n, g)\ny = Add(k, b)",
        "int64[1] a = {-1}, float two = {2.0}, float eps = {1e-5}, float[8] g, float[8] b",
    ),
    Case(
        "layer_norm_spelled_channels_first",
        "float[1,6,4,4] x",
        "m = ReduceMean(x, a)\nd = Sub(x, m)\np = Pow(d, two)\nv = ReduceMean(p, a)\n"
        "e = Add(v, eps)\ns = Sqrt(e)\nn = Div(d, s)\nk = Mul(n, g)\ny = Add(k, b)",
        "int64[1] a = {1}, float two = {2.0}, float eps = {1e-6}, float[6,1,1] g, float[6,1,1] b",
    ),
    *(
        Case(f"rms_norm_{n}", f"float[{x}] x", f"y = RMSNormalization{a}(x, g)", f"float[{g}] g")
        for n, x, g, a in (
            ("defaults", "2,3,8", "8", ""),
            ("axis1", "2,3,8", "3,8", "<axis=1>"),
            ("epsilon", "2,3,8", "8", "<epsilon=0.1>"),
            ("4d", "1,2,3,8", "8", ""),
        )
    ),
    Case(
        "rms_norm_spelled",
        "float[2,3,8] x",
        "p = Pow(x, two)\nv = ReduceMean(p, a)\ne = Add(v, eps)\ns = Sqrt(e)\n"
        "r = Reciprocal(s)\nn = Mul(x, r)\ny = Mul(g, n)",
        "int64[1] a = {-1}, float two = {2.0}, float eps = {1e-6}, float[8] g",
    ),
    *(
        Case(
            f"instance_norm_{n}",
            f"float[{x}] x",
            f"y = InstanceNormalization{a}(x, s, b)",
            f"float[{x.split(',')[1]}] s, float[{x.split(',')[1]}] b",
        )
        for n, x, a in (
            ("4d", "1,3,4,5", ""),
            ("epsilon", "2,3,4,5", "<epsilon=0.1>"),
            ("3d", "1,3,8", ""),
            ("5d", "1,2,3,2,3", ""),
            ("batch_is_channels", "4,4,4,4", ""),
        )
    ),
    *(
        Case(
            f"group_norm_{n}",
            f"float[{x}] x",
            f"y = GroupNormalization<num_groups={g}{a}>(x, s, b)",
            f"float[{x.split(',')[1]}] s, float[{x.split(',')[1]}] b",
            outputs=f"float[{x}] y",
        )
        for n, x, g, a in (
            ("2", "1,4,3,5", 2, ""),
            ("all", "1,4,3,5", 1, ""),
            ("each", "2,4,3,5", 4, ""),
            ("epsilon", "1,6,3,3", 3, ", epsilon=0.1"),
            ("3d", "1,4,6", 2, ""),
        )
    ),
    Case(
        "group_norm_spelled",
        "float[1,4,3,3] x",
        "r = Reshape(x, t)\nn = InstanceNormalization(r, s, b)\nu = Reshape(n, f)\n"
        "m = Mul(u, g)\ny = Add(m, h)",
        "int64[3] t = {0,2,-1}, float[2] s = {1.0, 1.0}, float[2] b = {0.0, 0.0}, "
        "int64[4] f = {1,4,3,3}, float[4,1,1] g, float[4,1,1] h",
    ),
    *(
        Case(f"lrn_{n}", f"float[{x}] x", f"y = LRN<{a}>(x)")
        for n, x, a in (
            ("defaults", "1,6,3,3", "size=5"),
            ("alexnet", "1,8,3,3", "size=5, alpha=0.0001, beta=0.75, bias=1.0"),
            ("strong", "1,6,3,3", "size=3, alpha=0.9, beta=0.5, bias=2.0"),
            ("batch", "2,5,3,2", "size=3, alpha=0.5"),
        )
    ),
    *(
        Case(f"lp_normalization_{n}", "float[2,3,4] x", f"y = LpNormalization<{a}>(x)")
        for n, a in (("l2_last", "axis=-1, p=2"), ("l1", "axis=1, p=1"), ("l2_axis0", "axis=0, p=2"))
    ),
    *(
        Case(f"mean_variance_{n}", "float[2,3,4,4] x", f"y = MeanVarianceNormalization{a}(x)")
        for n, a in (("plane", "<axes=[0,2,3]>"), ("channel", "<axes=[1]>"))
    ),
]
