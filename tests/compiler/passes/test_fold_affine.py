from __future__ import annotations

import re

import numpy as np
import pytest

from edgekit.compiler.passes.fold_affine import fold_affine
from tests.compiler.passes.meaning import Array, folded, ops, rewritten

pytestmark = pytest.mark.needs_ort


def noise(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


BN = {"g": noise(4), "h": noise(4) + 1, "m": noise(4) * 2, "v": np.abs(noise(4)) + 0.5}
CHANNELS = {
    "k": noise(4, 1, 1),
    "t": noise(1, 4, 1, 1),
    "s": np.array(1.7, np.float32),
    "pixel": noise(1, 1, 1, 6),
}


def after(
    weighted: str, tail: str, weight: Array, shape: str = "1,4,6,6", bias: Array | None = None
) -> list[str]:
    """ops that are left of ``c = weighted; y = tail``"""
    weights = {"w": weight, "b": noise(4), **BN, **CHANNELS}
    used = {name: array for name, array in weights.items() if re.search(rf"\b{name}\b", weighted + tail)}
    text = f"g (float[1,2,6,6] x) => (float[{shape}] y) {{ c = {weighted}  {tail} }}"
    return rewritten(folded(text, 23, **used), fold_affine)


CONV = "Conv <pads=[1,1,1,1]> (x, w)"
CONV_BIAS = "Conv <pads=[1,1,1,1]> (x, w, b)"


@pytest.mark.parametrize(
    "tail",
    [
        "y = BatchNormalization <epsilon=0.001> (c, g, h, m, v)",
        "y = Mul (c, k)",
        "y = Mul (s, c)",
        "y = Div (c, t)",
        "y = Add (c, k)",
        "y = Add (s, c)",
        "y = Sub (c, t)",
        "a = Mul (c, k)  d = Add (a, s)  y = BatchNormalization (d, g, h, m, v)",
    ],
)
@pytest.mark.parametrize("conv", [CONV, CONV_BIAS])
def test_into_the_conv_before(conv: str, tail: str) -> None:
    assert after(conv, tail, noise(4, 2, 3, 3)) == ["Conv"]


@pytest.mark.parametrize("group", [1, 2])
def test_into_a_transposed_conv(group: int) -> None:
    conv = f"ConvTranspose <pads=[1,1,1,1], group={group}> (x, w, b)"
    tail = "a = BatchNormalization (c, g, h, m, v)  y = Mul (a, k)"
    assert after(conv, tail, noise(2, 4 // group, 3, 3)) == ["ConvTranspose"]


@pytest.mark.parametrize("turned", [0, 1])
def test_into_a_gemm(turned: int) -> None:
    text = f"""g (float[3,2] x) => (float[3,4] y) {{ c = Gemm <transB={turned}> (x, w, b)
        a = Mul (c, k)  y = Sub (a, t) }}"""
    model = folded(text, w=noise(4, 2) if turned else noise(2, 4), b=noise(4), k=noise(4), t=noise(1, 4))
    assert rewritten(model, fold_affine) == ["Gemm"]


@pytest.mark.parametrize(
    ("tail", "left"),
    [
        ("y = Div (s, c)", ["Conv", "Div"]),
        ("y = Sub (s, c)", ["Conv", "Sub"]),
        ("y = Mul (c, pixel)", ["Conv", "Mul"]),
        ("y = Mul (c, c)", ["Conv", "Mul"]),
        ("r = Relu (c)  y = Mul (r, k)", ["Conv", "Relu", "Mul"]),
    ],
)
def test_not_what_is_no_scale_of_channels(tail: str, left: list[str]) -> None:
    assert after(CONV_BIAS, tail, noise(4, 2, 3, 3)) == left


def test_not_across_an_output_or_a_second_reader() -> None:
    text = "g (float[1,2,6,6] x) => (float[1,4,6,6] c, float[1,4,6,6] y) { c = Conv (x, w)  y = Mul (c, k) }"
    assert rewritten(folded(text, w=noise(4, 2, 1, 1), k=noise(4, 1, 1)), fold_affine) == ["Conv", "Mul"]
    text = """g (float[1,2,6,6] x) => (float[1,4,6,6] y) {
        c = Conv (x, w)  a = Mul (c, k)  r = Relu (c)  y = Add (a, r) }"""
    assert rewritten(folded(text, w=noise(4, 2, 1, 1), k=noise(4, 1, 1)), fold_affine) == [
        "Conv",
        "Mul",
        "Relu",
        "Add",
    ]


def test_a_weight_that_two_convs_share_is_changed_for_one() -> None:
    text = """g (float[1,2,6,6] x) => (float[1,4,6,6] y, float[1,4,6,6] z) {
        c = Conv (x, w)  y = Mul (c, k)  n = Neg (x)  z = Conv (n, w) }"""
    assert rewritten(folded(text, w=noise(4, 2, 1, 1), k=noise(4, 1, 1)), fold_affine) == [
        "Conv",
        "Neg",
        "Conv",
    ]


def test_not_into_a_quantized_weight() -> None:
    text = """g (float[1,2,6,6] x) => (float[1,4,6,6] y) {
        w = DequantizeLinear (q, s)  c = Conv (x, w)  y = Mul (c, k) }"""
    model = folded(text, q=np.ones((4, 2, 1, 1), np.int8), s=0.1, k=noise(4, 1, 1))
    assert rewritten(model, fold_affine) == ["DequantizeLinear", "Conv", "Mul"]


def test_not_what_would_overflow() -> None:
    text = "g (float[1,2,6,6] x) => (float[1,4,6,6] y) { c = Conv (x, w)  y = Mul (c, s) }"
    model = folded(text, w=np.full((4, 2, 1, 1), 1e30, np.float32), s=1e30)
    fold_affine(model)
    assert ops(model) == ["Conv", "Mul"]


@pytest.mark.parametrize(
    ("pads", "left"), [("0,0,0,0", ["Neg", "Conv"]), ("1,1,1,1", ["Neg", "Mul", "Add", "Conv"])]
)
def test_a_shift_before_a_conv_only_without_padding(pads: str, left: list[str]) -> None:
    size = 4 if pads.startswith("0") else 6
    text = f"""g (float[1,4,6,6] x) => (float[1,4,{size},{size}] y) {{
        n = Neg (x)  a = Mul (n, k)  d = Add (a, s)  y = Conv <group=2, pads=[{pads}]> (d, w) }}"""
    assert rewritten(folded(text, w=noise(4, 2, 3, 3), k=noise(4, 1, 1), s=0.7), fold_affine) == left


def test_a_scale_before_a_conv_also_with_padding() -> None:
    text = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
        n = Neg (x)  a = Mul (k, n)  y = Conv <group=4, pads=[1,1,1,1]> (a, w, b) }"""
    assert rewritten(folded(text, w=noise(4, 1, 3, 3), b=noise(4), k=noise(4, 1, 1)), fold_affine) == [
        "Neg",
        "Conv",
    ]


@pytest.mark.parametrize(("second", "weights"), [("k", 1), ("m", 2)])
def test_a_shared_weight_is_folded_once_for_each_scale(second: str, weights: int) -> None:
    arrays = {"w": noise(40, 40, 1, 1), "k": noise(40, 1, 1)}
    arrays |= {"m": noise(40, 1, 1) + 2} if second == "m" else {}
    model = folded(
        "g (float[1,40,2,2] x) => (float[1,40,2,2] y) {"
        f" a = Conv (x, w)  b = Mul (a, k)  c = Conv (b, w)  y = Mul (c, {second}) }}",
        23,
        **arrays,
    )
    assert rewritten(model, fold_affine) == ["Conv", "Conv"]
    read = {str(node.inputs[1].name) for node in model.graph if node.inputs[1] is not None}
    assert len(read) == weights
