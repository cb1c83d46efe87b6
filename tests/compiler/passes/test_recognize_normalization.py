from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import float_of, int_of
from edgekit.compiler.passes.recognize_normalization import recognize_normalization
from tests.compiler.passes.meaning import Array, folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    two = Constant <value = float {2.0}> ()      eps = Constant <value = float {0.00001}> ()
    last = Constant <value = int64[1] {-1}> ()   pair = Constant <value = int64[2] {1, 2}> ()
    first = Constant <value = int64[1] {1}> ()   one = Constant <value = float {1.0}> ()
    back = Constant <value = float {-0.5}> ()
"""
WEIGHTS = {
    "gamma": np.array([1.5, 2, -1, 0.3], np.float32),
    "beta": np.array([[0.1, 0.2, 0.3, 0.4]], np.float32),
}
MEAN = "m = ReduceMean (x, last)  d = Sub (x, m)"
POW = "p = Pow (d, two)  v = ReduceMean (p, last)  w = Add (v, eps)  r = Sqrt (w)"
MUL = "p = Mul (d, d)  v = ReduceMean (p, last)  w = Add (eps, v)  r = Sqrt (w)"


def left(nodes: str, output: str = "") -> list[str]:
    used: dict[str, Array] = {k: v for k, v in WEIGHTS.items() if k in nodes}
    text = f"g (float[2,3,4] x) => (float[2,3,4] y{output}) {{ {CONSTANTS} {nodes} }}"
    model = folded(text, 23, **used)
    ops = rewritten(model, recognize_normalization)
    if len(ops) == 1:
        assert float_of(model.graph[0], "epsilon", 0) == pytest.approx(1e-5)
        assert int_of(model.graph[0], "axis", 0) == (-2 if "pair" in nodes else -1)
    return ops


@pytest.mark.parametrize(
    "nodes",
    [
        f"{MEAN}  {POW}  n = Div (d, r)  g = Mul (n, gamma)  y = Add (g, beta)",
        f"{MEAN}  {MUL}  n = Div (d, r)  g = Mul (gamma, n)  y = Add (beta, g)",
        f"{MEAN}  {POW}  i = Reciprocal (r)  n = Mul (d, i)  y = Mul (n, gamma)",
        f"{MEAN}  {POW}  i = Div (one, r)  n = Mul (i, d)  y = Add (n, beta)",
        f"{MEAN}  p = Mul (d, d)  v = ReduceMean (p, last)  w = Add (v,eps)  i = Pow (w,back)  y = Mul (d,i)",
        f"{MEAN}  {POW}  y = Div (d, r)",
        f"{MEAN}  {POW}  n = Div (d, r)  y = Mul (n, gamma)".replace("last", "pair"),
    ],
)
def test_layer_normalization(nodes: str) -> None:
    if "pair" in nodes:
        nodes = nodes.replace("  y = Mul (n, gamma)", "  y = Mul (n, two)")
    assert left(nodes) == ["LayerNormalization"]


@pytest.mark.parametrize(
    "nodes",
    [
        f"{POW}  n = Div (x, r)  y = Mul (n, gamma)".replace("(d,", "(x,"),
        f"{MUL}  i = Reciprocal (r)  n = Mul (x, i)  y = Mul (gamma, n)".replace("d, d", "x, x"),
    ],
)
def test_rms_normalization(nodes: str) -> None:
    assert left(nodes) == ["RMSNormalization"]


@pytest.mark.parametrize(
    "nodes",
    [
        f"{MEAN}  {POW}  n = Div (d, r)  y = Mul (n, gamma)".replace("last", "first"),  # an inner axis
        f"{MEAN}  {POW}  y = Div (x, r)",  # divides what it did not square
        f"{MEAN}  p = Pow (d, two)  v = ReduceMean (p, last)  r = Sqrt (v)  y = Div (d, r)",  # no epsilon
    ],
)
def test_near_misses(nodes: str) -> None:
    found = left(nodes)
    assert "LayerNormalization" not in found
    assert "RMSNormalization" not in found


def test_the_variance_as_an_output_stays() -> None:
    assert left(f"{MEAN}  {POW}  y = Div (d, r)", ", float[2,3,1] v")[-1] == "Div"


def test_a_scale_of_another_shape_stays_outside() -> None:
    nodes = f"{CONSTANTS} {MEAN}  {POW}  n = Div (d, r)  y = Mul (n, rows)"
    text = f"g (float[2,3,4] x) => (float[2,3,4] y) {{ {nodes} }}"
    model = folded(text, rows=np.ones((3, 1), np.float32) * 2)
    assert rewritten(model, recognize_normalization) == ["LayerNormalization", "Mul"]
