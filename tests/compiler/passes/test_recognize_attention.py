from __future__ import annotations

import pytest

from edgekit.compiler.model.rewriting import float_of
from edgekit.compiler.passes.recognize_attention import recognize_attention
from tests.compiler.passes.meaning import folded, ops, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    c = Constant <value = float {0.3535534}> ()   d = Constant <value = float {2.828427}> ()
    minus = Constant <value = float {-1.0}> ()    row = Constant <value = float[5] {1,2,3,4,5}> ()
"""
SCALE = 0.3535534
INPUTS = "float[1,2,3,8] q, float[1,2,5,8] k, float[1,2,5,4] v"
K = "t = Transpose <perm=[0,1,3,2]> (k)  s = MatMul (q, t)"


def left(nodes: str, inputs: str = INPUTS, shape: str = "1,2,3,4", extra: str = "") -> list[str]:
    model = folded(f"g ({inputs}{extra}) => (float[{shape}] y) {{ {CONSTANTS} {nodes} }}")
    found = rewritten(model, recognize_attention)
    for node in model.graph:
        if node.op_type == "Attention":
            scale = SCALE if "c)" in nodes or "d)" in nodes else 1
            assert float_of(node, "scale", 0) == pytest.approx(scale)
    return found


@pytest.mark.parametrize(
    "nodes",
    [
        f"{K}  m = Mul (s, c)  p = Softmax (m)  y = MatMul (p, v)",
        f"{K}  m = Div (s, d)  p = Softmax <axis=3> (m)  y = MatMul (p, v)",
        f"{K}  p = Softmax (s)  y = MatMul (p, v)",
        K.replace("s = MatMul (q, t)", "e = Mul (q, c)  s = MatMul (e, t)")
        + "  p = Softmax (s)  y = MatMul (p, v)",
    ],
)
def test_without_a_mask(nodes: str) -> None:
    assert left(nodes) == ["Attention"]


@pytest.mark.parametrize("mask", ["float[3,5] mask", "float[1,1,3,5] mask", "float[1,2,3,5] mask"])
def test_with_a_mask(mask: str) -> None:
    nodes = f"{K}  m = Mul (s, c)  a = Add (m, mask)  p = Softmax (a)  y = MatMul (p, v)"
    assert left(nodes, extra=f", {mask}") == ["Attention"]


def test_a_key_that_comes_by_heads_last_is_turned_to_the_heads() -> None:
    inputs = "float[1,2,3,8] q, float[1,5,2,8] k, float[1,2,5,4] v"
    nodes = "t = Transpose <perm=[0,2,3,1]> (k)  s = MatMul (q, t)  p = Softmax (s)  y = MatMul (p, v)"
    assert left(nodes, inputs) == ["Transpose", "Attention"]


@pytest.mark.parametrize(
    ("nodes", "extra"),
    [
        (f"{K}  m = Mul (s, c)  p = Softmax <axis=2> (m)  y = MatMul (p, v)", ""),
        (f"{K}  m = Mul (s, minus)  p = Softmax (m)  y = MatMul (p, v)", ""),
        (f"{K}  m = Mul (s, row)  p = Softmax (m)  y = MatMul (p, v)", ""),
        (f"{K}  a = Add (s, row)  p = Softmax (a)  y = MatMul (p, v)", ""),
        (f"{K}  a = Add (s, mask)  p = Softmax (a)  y = MatMul (p, v)", ", float[1,1,1,5] mask"),
        ("s = MatMul (q, k)  p = Softmax (s)  y = MatMul (p, v)", ""),
    ],
)
def test_near_misses(nodes: str, extra: str) -> None:
    inputs = INPUTS if "t)" in nodes else "float[1,2,3,8] q, float[1,2,8,5] k, float[1,2,5,4] v"
    assert "Attention" not in left(nodes, inputs, extra=extra)


def test_scores_that_others_read_stay() -> None:
    model = folded(
        f"g ({INPUTS}) => (float[1,2,3,4] y, float[1,2,3,5] p) {{ {K}  p = Softmax (s)  y = MatMul (p, v) }}"
    )
    before = ops(model)
    assert rewritten(model, recognize_attention) == before


def test_heads_that_broadcast_stay() -> None:
    inputs = "float[1,2,3,8] q, float[1,1,5,8] k, float[1,1,5,4] v"
    assert "Attention" not in left(f"{K}  p = Softmax (s)  y = MatMul (p, v)", inputs)
