from __future__ import annotations

import pytest

from edgekit.compiler.passes.recognize_clip import recognize_clip
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    zero = Constant <value = float {0.0}> ()  one = Constant <value = float {1.0}> ()
    six = Constant <value = float {6.0}> ()   low = Constant <value = float {-1.5}> ()
    inf = Constant <value = float {inf}> ()   row = Constant <value = float[3] {0, 1, 2}> ()
"""


def left(nodes: str) -> list[str]:
    return rewritten(
        folded(f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ {CONSTANTS} {nodes} }}"), recognize_clip
    )


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("y = Max (x, zero)", ["Relu"]),
        ("y = Max (zero, x)", ["Relu"]),
        ("y = Clip (x, zero)", ["Relu"]),
        ("y = Clip (x, zero, inf)", ["Relu"]),
        ("y = Min (x, six)", ["Clip"]),
        ("a = Max (x, low)  y = Min (a, six)", ["Clip"]),
        ("a = Min (x, six)  y = Max (a, low)", ["Clip"]),
        ("a = Relu (x)  y = Min (a, six)", ["Clip"]),
        ("a = Relu (x)  y = Clip (a, low, six)", ["Clip"]),
        ("a = Clip (x, low, one)  y = Clip (a, zero, six)", ["Clip"]),
        ("a = Clip (x, low, zero)  y = Clip (a, one, six)", ["Clip"]),
        ("a = Clip (x, one, six)  y = Clip (a, low, zero)", ["Clip"]),
        ("a = Relu (x)  y = Relu (a)", ["Relu"]),
        ("a = Clip (x, low, six)  y = Relu (a)", ["Clip"]),
        ("a = Relu (x)  y = Clip (a, low)", ["Relu"]),
    ],
)
def test_one_form(nodes: str, ops: list[str]) -> None:
    assert left(nodes) == ops


@pytest.mark.parametrize(
    ("nodes", "ops"),
    [
        ("y = Max (x, z)", ["Max"]),
        ("y = Max (x, row)", ["Max"]),
        ("y = Max (x, zero, one)", ["Max"]),
        ("y = Clip (x, zero, six)", ["Clip"]),
        ("y = Clip (x, low)", ["Clip"]),
        ("a = Relu (x)  b = Clip (a, zero, six)  y = Add (a, b)", ["Relu", "Clip", "Add"]),
    ],
)
def test_left_alone(nodes: str, ops: list[str]) -> None:
    assert left(nodes) == ops
