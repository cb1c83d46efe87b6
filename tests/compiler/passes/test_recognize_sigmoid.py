from __future__ import annotations

import pytest

from edgekit.compiler.passes.recognize_sigmoid import recognize_sigmoid
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    one = Constant <value = float {1.0}> ()  two = Constant <value = float {2.0}> ()
    minus = Constant <value = float {-1.0}> ()
"""


def left(nodes: str) -> list[str]:
    text = f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ {CONSTANTS} {nodes} }}"
    return rewritten(folded(text), recognize_sigmoid)


E = "n = Neg (x)  e = Exp (n)  p = Add (e, one)"


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        (f"{E}  y = Div (one, p)", ["Sigmoid"]),
        (f"{E}  y = Reciprocal (p)", ["Sigmoid"]),
        ("n = Mul (minus, x)  e = Exp (n)  p = Add (one, e)  y = Div (one, p)", ["Sigmoid"]),
        (f"{E}  y = Div (x, p)", ["Sigmoid", "Mul"]),
        (f"{E}  s = Div (one, p)  y = Mul (s, x)", ["Sigmoid", "Mul"]),
        ("s = Sigmoid (x)  y = Mul (s, x)", ["Sigmoid", "Mul"]),
    ],
)
def test_one_form(nodes: str, ops: list[str]) -> None:
    assert left(nodes) == ops


@pytest.mark.parametrize(
    "nodes",
    [
        "e = Exp (x)  p = Add (e, one)  y = Div (one, p)",
        "n = Neg (x)  e = Exp (n)  p = Add (e, two)  y = Div (one, p)",
        f"{E}  y = Div (two, p)",
        f"{E}  y = Div (z, p)",
        f"{E}  d = Div (x, p)  y = Add (d, e)",
        "s = Sigmoid (x)  y = Mul (z, s)",
    ],
)
def test_near_misses(nodes: str) -> None:
    model_ops = [part.split("=")[1].split()[0] for part in nodes.split("  ")]
    assert left(nodes) == model_ops


def test_x_comes_first() -> None:
    model = folded("g (float[2] x) => (float[2] y) { s = Sigmoid (x)  y = Mul (s, x) }")
    recognize_sigmoid(model)
    assert model.graph[1].inputs[0] is model.graph.inputs[0]
