"""Ops of ONNX Runtime alone, in ONNX's, against ONNX Runtime's kernels for them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgekit.compiler.passes.expand_functions import write_out_contributed
from tests.compiler.passes.meaning import Weight, folded, rewritten

pytestmark = pytest.mark.needs_ort

IMAGE = "g (float[1,3,6,6] x) => (float[1,4,6,6] y) "
CONV = "kernel_shape=[3,3], pads=[1,1,1,1]"
TOKENS = "g (float[2,5,8] x) => (float[2,5,8] y) "
Shapes = dict[str, tuple[int, ...]]

FLOATS: list[tuple[str, str, Shapes]] = [
    ("relu", IMAGE + f'{{ y = com.microsoft.FusedConv <{CONV}, activation="Relu"> (x, w, b) }}', {}),
    ("no_bias", IMAGE + f'{{ y = com.microsoft.FusedConv <{CONV}, activation="Tanh"> (x, w) }}', {}),
    (
        "leaky",
        IMAGE + f'{{ y = com.microsoft.FusedConv <{CONV}, activation="LeakyRelu", activation_params=[0.2]> '
        "(x, w, b) }",
        {},
    ),
    (
        "clip",
        IMAGE + f'{{ y = com.microsoft.FusedConv <{CONV}, activation="Clip", activation_params=[-0.5, 1.0]> '
        "(x, w, b) }",
        {},
    ),
    (
        "hard_sigmoid",
        IMAGE + f'{{ y = com.microsoft.FusedConv <{CONV}, activation="HardSigmoid", '
        "activation_params=[0.3, 0.4]> (x, w, b) }",
        {},
    ),
    (
        "sum",
        "g (float[1,3,6,6] x, float[1,4,6,6] z) => (float[1,4,6,6] y) "
        f'{{ y = com.microsoft.FusedConv <{CONV}, activation="Relu"> (x, w, b, z) }}',
        {},
    ),
    (
        "gemm",
        "g (float[2,3] x) => (float[2,4] y) { y = com.microsoft.FusedGemm <transB=1, alpha=0.5, "
        'beta=1.0, activation="LeakyRelu", activation_alpha=0.3> (x, w, b) }',
        {"w": (4, 3)},
    ),
    (
        "matmul",
        "g (float[2,8,5] x) => (float[2,5,4] y) "
        "{ y = com.microsoft.FusedMatMul <transA=1, alpha=0.3> (x, w) }",
        {"w": (8, 4)},
    ),
    (
        "matmul_of_a_batch",
        "g (float[5,2,3,8] x, float[2,3,4,8] z) => (float[2,3,5,4] y) "
        "{ y = com.microsoft.FusedMatMul <transBatchA=1, transB=1> (x, z) }",
        {},
    ),
    ("gelu", TOKENS + "{ y = com.microsoft.Gelu (x) }", {}),
    ("bias_gelu", TOKENS + "{ y = com.microsoft.BiasGelu (x, b) }", {"b": (8,)}),
    ("fast_gelu", TOKENS + "{ y = com.microsoft.FastGelu (x, b) }", {"b": (8,)}),
    ("quick_gelu", TOKENS + "{ y = com.microsoft.QuickGelu (x) }", {}),
    ("quick_gelu_alpha", TOKENS + "{ y = com.microsoft.QuickGelu <alpha=1.3> (x) }", {}),
    (
        "skip",
        TOKENS + "{ y = com.microsoft.SkipLayerNormalization <epsilon=0.001> (x, s, w, b, c) }",
        {"s": (2, 5, 8), "w": (8,), "b": (8,), "c": (8,)},
    ),
    (
        "skip_and_sum",
        "g (float[2,5,8] x) => (float[2,5,8] y, float[2,5,8] z) "
        "{ y, m, v, z = com.microsoft.SkipLayerNormalization (x, s, w) }",
        {"s": (2, 5, 8), "w": (8,)},
    ),
    (
        "skip_simplified",
        "g (float[2,5,8] x) => (float[2,5,8] y, float[2,5,8] z) "
        "{ y, m, v, z = com.microsoft.SkipSimplifiedLayerNormalization (x, s, w, c) }",
        {"s": (2, 5, 8), "w": (8,), "c": (8,)},
    ),
    ("simplified", TOKENS + "{ y = SimplifiedLayerNormalization <epsilon=0.01> (x, w) }", {"w": (8,)}),
]


@pytest.mark.parametrize(("text", "shapes"), [row[1:] for row in FLOATS], ids=[row[0] for row in FLOATS])
def test_float_ops(text: str, shapes: Shapes) -> None:
    rng = np.random.default_rng(7)
    named: Shapes = {"w": (4, 3, 3, 3), "b": (4,), **shapes}
    weights: dict[str, Weight] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in named.items()
        if name in re.findall(r"\w+", text.rpartition("(")[2])
    }
    assert not {"FusedConv", "FusedGemm"} & set(rewritten(folded(text, 23, **weights), write_out_contributed))


U8 = "q = QuantizeLinear (x, s, z)\n"
QUANTIZED: list[tuple[str, str, str]] = [
    ("add", "1,3,4,4", "t = com.microsoft.QLinearAdd (q, s, z, q, s, z, r, z)"),
    ("mul", "1,3,4,4", "t = com.microsoft.QLinearMul (q, s, z, q, s, z, r, z)"),
    ("sigmoid", "1,3,4,4", "t = com.microsoft.QLinearSigmoid (q, s, z, r, z)"),
    ("leaky", "1,3,4,4", "t = com.microsoft.QLinearLeakyRelu <alpha=0.2> (q, s, z, r, z)"),
    ("softmax", "1,3,4,4", "t = com.microsoft.QLinearSoftmax <axis=3, opset=13> (q, s, z, r, z)"),
    (
        "average",
        "1,3,2,2",
        "t = com.microsoft.QLinearAveragePool <kernel_shape=[2,2], strides=[2,2]> (q, s, z, r, z)",
    ),
    ("global_average", "1,3,1,1", "t = com.microsoft.QLinearGlobalAveragePool (q, s, z, r, z)"),
    ("concat", "1,6,4,4", "t = com.microsoft.QLinearConcat <axis=1> (r, z, q, s, z, q, s, z)"),
]


@pytest.mark.parametrize(("out", "body"), [row[1:] for row in QUANTIZED], ids=[row[0] for row in QUANTIZED])
def test_integer_ops(out: str, body: str) -> None:
    text = f"g (float[1,3,4,4] x) => (float[{out}] y) {{ {U8}{body}\ny = DequantizeLinear (t, r, z) }}"
    # One value in a hundred is a step off, where the engine rounds a half otherwise.
    left = rewritten(folded(text, 23, **PAIR), write_out_contributed, minimum_db=35)
    assert not any(op.startswith("QLinear") for op in left)


# Weights below 64: without VNNI, the engine that is compared with adds pairs of products in 16 bits.
PAIR: dict[str, Weight] = {
    "s": np.array(0.04, np.float32), "z": np.array(120, np.uint8), "r": np.array(0.05, np.float32),
}  # fmt: skip


@pytest.mark.parametrize("is_rounded", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_gemm_of_a_scale_a_channel(is_rounded: bool, transposed: bool) -> None:
    rng = np.random.default_rng(3)
    w = rng.integers(-63, 64, (5, 6) if transposed else (6, 5)).astype(np.int8)
    weights: dict[str, Weight] = {
        "w": w,
        "ws": rng.uniform(0.01, 0.02, 5).astype(np.float32),
        "wz": np.zeros(5, np.int8),
        "c": rng.integers(-900, 900, 5).astype(np.int32),
    }
    end = (", r, z", "y = DequantizeLinear (t, r, z)") if is_rounded else ("", "y = Identity (t)")
    text = (
        f"g (float[4,6] x) => (float[4,5] y) {{ {U8}t = com.microsoft.QGemm <transB={int(transposed)}, "
        f"alpha=0.5> (q, s, z, w, ws, wz, c{end[0]})\n{end[1]} }}"
    )
    used: dict[str, Weight] = (
        {**PAIR, **weights} if is_rounded else {"s": PAIR["s"], "z": PAIR["z"], **weights}
    )
    left = rewritten(folded(text, 23, **used), write_out_contributed, minimum_db=35 if is_rounded else 110)
    assert "QGemm" not in left


@pytest.mark.parametrize("bias", ["", ", b"])
def test_product_of_integers_in_float(bias: str) -> None:
    rng = np.random.default_rng(4)
    weights: dict[str, Weight] = {
        "w": rng.integers(-63, 64, (6, 5)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.02, 5).astype(np.float32),
        "wz": np.zeros(5, np.int8),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    text = (
        f"g (float[4,6] x) => (float[4,5] y) {{ {U8}"
        f"y = com.microsoft.MatMulIntegerToFloat (q, w, s, ws, z, wz{bias}) }}"
    )
    used: dict[str, Weight] = {
        "s": PAIR["s"],
        "z": PAIR["z"],
        **{k: v for k, v in weights.items() if k != "b" or bias},
    }
    left = rewritten(folded(text, 23, **used), write_out_contributed)
    assert left[-1] == ("Add" if bias else "MatMul")


@pytest.mark.parametrize(
    "text",
    [
        TOKENS + "{ y, m = com.microsoft.SkipLayerNormalization (x, x, w)\n z = Identity (m) }",
        "g (float[1,3,4,4] x) => (float[1,3,4,4] y) "
        "{ y = com.microsoft.MaxpoolWithMask <kernel_shape=[1,1]> (x, x) }",
    ],
    ids=["mean_is_read", "no_form"],
)
def test_others_stay(text: str) -> None:
    text = text.replace("(float[2,5,8] y)", "(float[2,5,8] y, float[2,5,1] z)")
    weights: dict[str, Weight] = {"w": np.ones(8, np.float32)} if ", w)" in text else {}
    model = folded(text, 23, **weights)
    assert not write_out_contributed(model)
