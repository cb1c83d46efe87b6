from __future__ import annotations

import pytest

from edgekit.compiler.model.rewriting import text_of
from edgekit.compiler.passes.recognize_gelu import recognize_gelu
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    one = Constant <value = float {1.0}> ()          half = Constant <value = float {0.5}> ()
    root = Constant <value = float {1.4142135}> ()   inverse = Constant <value = float {0.70710677}> ()
    c = Constant <value = float {0.7978846}> ()      k = Constant <value = float {0.044715}> ()
    three = Constant <value = float {3.0}> ()        wrong = Constant <value = float {0.05}> ()
"""
ERF = "d = Div (x, root)  e = Erf (d)  a = Add (e, one)"
TANH = "p = Pow (x, three)  q = Mul (k, p)  s = Add (x, q)  t = Mul (c, s)  h = Tanh (t)  a = Add (one, h)"
SQUARE = """x2 = Mul (x, x)  q = Mul (x2, k)  r = Add (one, q)  u = Mul (c, x)  t = Mul (u, r)
    h = Tanh (t)  a = Add (h, one)"""


def left(nodes: str, form: str | None) -> list[str]:
    model = folded(f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ {CONSTANTS} {nodes} }}")
    ops = rewritten(model, recognize_gelu)
    if form is not None:
        assert text_of(model.graph[0], "approximate", "none") == form
    return ops


@pytest.mark.parametrize(
    ("nodes", "form"),
    [
        (f"{ERF}  m = Mul (x, a)  y = Mul (m, half)", "none"),
        (f"{ERF}  m = Mul (x, half)  y = Mul (m, a)", "none"),
        (f"{ERF}  m = Mul (half, a)  y = Mul (x, m)", "none"),
        ("d = Mul (inverse, x)  e = Erf (d)  a = Add (one, e)  m = Mul (a, x)  y = Mul (half, m)", "none"),
        (f"{TANH}  m = Mul (half, x)  y = Mul (m, a)", "tanh"),
        (f"{TANH}  m = Mul (a, x)  y = Mul (m, half)", "tanh"),
        (f"{SQUARE}  m = Mul (half, x)  y = Mul (m, a)", "tanh"),
    ],
)
def test_every_spelling(nodes: str, form: str) -> None:
    assert left(nodes, form) == ["Gelu"]


@pytest.mark.parametrize(
    "nodes",
    [
        f"{ERF}  m = Mul (z, a)  y = Mul (m, half)",
        f"{ERF}  m = Mul (x, a)  y = Mul (m, one)",
        "d = Div (x, three)  e = Erf (d)  a = Add (e, one)  m = Mul (x, a)  y = Mul (m, half)",
        TANH.replace("Mul (k, p)", "Mul (wrong, p)") + "  m = Mul (half, x)  y = Mul (m, a)",
        TANH.replace("Add (x, q)", "Add (z, q)") + "  m = Mul (half, x)  y = Mul (m, a)",
        f"{ERF}  m = Mul (x, a)  n = Mul (m, half)  y = Add (n, a)",
    ],
)
def test_near_misses(nodes: str) -> None:
    assert "Gelu" not in left(nodes, None)
