from __future__ import annotations

import pytest

from edgekit.compiler.passes.recognize_hard_swish import recognize_hard_swish
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    zero = Constant <value = float {0.0}> ()  one = Constant <value = float {1.0}> ()
    three = Constant <value = float {3.0}> () six = Constant <value = float {6.0}> ()
    sixth = Constant <value = float {0.16666667}> ()  five = Constant <value = float {5.0}> ()
    fifth = Constant <value = float {0.2}> ()  half = Constant <value = float {0.5}> ()
"""
GATE = "a = Add (x, three)  c = Clip (a, zero, six)"


def left(nodes: str, output: str = "") -> list[str]:
    text = f"g (float[2,3] x, float[2,3] z) => (float[2,3] y{output}) {{ {CONSTANTS} {nodes} }}"
    return rewritten(folded(text), recognize_hard_swish)


@pytest.mark.parametrize(
    "nodes",
    [
        f"{GATE}  m = Mul (x, c)  y = Div (m, six)",
        f"{GATE}  m = Mul (c, x)  y = Mul (m, sixth)",
        f"{GATE}  d = Div (c, six)  y = Mul (x, d)",
        f"{GATE}  d = Mul (sixth, c)  y = Mul (d, x)",
        f"{GATE}  d = Div (x, six)  y = Mul (d, c)",
        "a = Add (three, x)  c = Clip (a, zero, six)  d = Div (c, six)  y = Mul (d, x)",
        "h = HardSigmoid <alpha=0.16666667, beta=0.5> (x)  y = Mul (x, h)",
    ],
)
def test_hard_swish(nodes: str) -> None:
    assert left(nodes) == ["HardSwish"]


@pytest.mark.parametrize(
    "nodes",
    [
        f"{GATE}  y = Div (c, six)",
        f"{GATE}  y = Mul (c, sixth)",
        "m = Mul (x, fifth)  a = Add (m, half)  y = Clip (a, zero, one)",
        "m = Div (x, five)  a = Add (half, m)  y = Clip (a, zero, one)",
        "a = Add (x, half)  y = Clip (a, zero, one)",
    ],
)
def test_hard_sigmoid(nodes: str) -> None:
    assert left(nodes) == ["HardSigmoid"]


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("y = Clip (x, zero, one)", ["Clip"]),
        ("a = Add (x, three)  c = Clip (a, zero, six)  y = Mul (c, z)", ["Add", "Clip", "Mul"]),
        (
            "a = Add (x, three)  c = Clip (a, zero, five)  m = Mul (x, c)  y = Div (m, six)",
            ["Add", "Clip", "Mul", "Div"],
        ),
        (
            "a = Add (x, half)  c = Clip (a, zero, six)  m = Mul (x, c)  y = Div (m, six)",
            ["Add", "Clip", "Mul", "Div"],
        ),
        (f"{GATE}  m = Mul (z, c)  y = Div (m, six)", ["Add", "Clip", "Mul", "Div"]),
        ("h = HardSigmoid <alpha=0.2, beta=0.5> (x)  y = Mul (x, h)", ["HardSigmoid", "Mul"]),
    ],
)
def test_near_misses(nodes: str, ops: list[str]) -> None:
    assert left(nodes) == ops


def test_a_gate_that_is_an_output_stays() -> None:
    assert left(f"{GATE}  m = Mul (x, c)  y = Div (m, six)", ", float[2,3] c") == [
        "Add",
        "Clip",
        "Mul",
        "Div",
    ]
