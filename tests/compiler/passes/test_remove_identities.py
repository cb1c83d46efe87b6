from __future__ import annotations

import pytest

from edgekit.compiler.passes.remove_identities import remove_identities
from tests.compiler.passes.meaning import folded, ops, rewritten

pytestmark = pytest.mark.needs_ort

NOTHING = {
    "identity": "Identity (n)",
    "cast": "Cast <to=1> (n)",
    "reshape": "Reshape (n, same)",
    "expand": "Expand (n, ones)",
    "transpose": "Transpose <perm=[0,1,2]> (n)",
    "slice": "Slice (n, zero, end, zero)",
    "concat": "Concat <axis=0> (n)",
    "sum": "Sum (n)",
    "max": "Max (n)",
    "split": "Split <axis=0, num_outputs=1> (n)",
    "pad": "Pad (n, nopad)",
    "clip": "Clip (n)",
    "mul": "Mul (one, n)",
    "div": "Div (n, one)",
    "add": "Add (n, z)",
    "sub": "Sub (n, z)",
    "pow": "Pow (n, one)",
    "resize": "Resize (n, , unit)",
}
SOMETHING = {
    "cast": "Cast <to=1> (i)",
    "reshape": "Reshape (n, other)",
    "reverse": "Slice (n, end, start, zero, back)",
    "mul_that_broadcasts": "Mul (m, wide)",
    "zero_minus": "Sub (z, n)",
    "one_over": "Div (one, n)",
}
CONSTANTS = """
    same = Constant <value = int64[3] {2,-1,4}> ()   ones = Constant <value = int64[3] {1,1,1}> ()
    other = Constant <value = int64[3] {3,2,4}> ()   zero = Constant <value = int64[1] {0}> ()
    end = Constant <value = int64[1] {99}> ()        start = Constant <value = int64[1] {-99}> ()
    back = Constant <value = int64[1] {-1}> ()       nopad = Constant <value = int64[6] {0,0,0,0,0,0}> ()
    one = Constant <value = float[1,1,1] {1.0}> ()   z = Constant <value = float {0.0}> ()
    wide = Constant <value = float[2] {1, 1}> ()
    unit = Constant <value = float[3] {1,1,1}> ()
"""


SHAPES = {"reshape": "float[3,2,4]", "mul_that_broadcasts": "float[1,1,2]"}


@pytest.mark.parametrize("name", NOTHING)
def test_gone(name: str) -> None:
    nodes = f"{CONSTANTS} n = Neg (x)  t = {NOTHING[name]}  y = Relu (t)"
    model = folded(f"g (float[2,3,4] x) => (float[2,3,4] y) {{ {nodes} }}")
    assert rewritten(model, remove_identities) == ["Neg", "Relu"]


@pytest.mark.parametrize("name", SOMETHING)
def test_kept(name: str) -> None:
    sources = "n = Neg (x)  i = Cast <to=7> (x)  m = ReduceMean (x)"
    nodes = f"{CONSTANTS} {sources}  t = {SOMETHING[name]}  y = Relu (t)"
    model = folded(f"g (float[2,3,4] x) => ({SHAPES.get(name, 'float[2,3,4]')} y) {{ {nodes} }}")
    before = ops(model)
    assert rewritten(model, remove_identities) == before


def test_an_output_keeps_its_name() -> None:
    model = folded("g (float[2] x) => (float[2] y) { n = Neg (x)  y = Identity (n) }")
    assert rewritten(model, remove_identities) == ["Neg"]
    assert model.graph.outputs[0].name == "y"


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { y = Identity (x) }",
        "g (float[2] x) => (float[2] n, float[2] y) { n = Neg (x)  y = Identity (n) }",
    ],
)
def test_an_output_that_would_take_another_ones_name_stays(text: str) -> None:
    model = folded(text)
    before = [node.op_type for node in model.graph]
    assert rewritten(model, remove_identities) == before
