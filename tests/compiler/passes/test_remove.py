"""What no output needs, dropouts and operators that change nothing are removed."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from edgekit.compiler.passes.remove_dropout import remove_dropout
from edgekit.compiler.passes.remove_identities import remove_identities
from tests.compiler.passes.meaning import answers, assert_same, folded, model_of, ops, rewritten

pytestmark = pytest.mark.needs_ort


def test_what_no_output_needs_goes_and_inputs_stay() -> None:
    model = model_of(
        "g (float[2] x, float[2] unused) => (float[2] y) { a = Neg (x)  b = Add (a, w)  y = Relu (a) }",
        w=[1.0],
    )
    assert rewritten(model, remove_dead_code) == ["Neg", "Relu"]
    assert not model.graph.initializers
    assert [value.name for value in model.graph.inputs] == ["x", "unused"]


def test_a_value_that_only_a_branch_reads_is_alive() -> None:
    model = model_of("""g (float[2] x, bool c) => (float[2] y) {
        n = Neg (x)
        y = If (c) <then_branch = t () => (float[2] a) { d = Exp (n)  a = Relu (n) },
                    else_branch = e () => (float[2] b) { b = Identity (x) }>
    }""")
    assert rewritten(model, remove_dead_code) == ["Neg", "If"]
    assert [n.op_type for n in model.graph[1].attributes["then_branch"].as_graph()] == ["Relu"]


CONSTANTS = """
    ratio = Constant <value = float {0.9}> ()
    no = Constant <value = bool {0}> ()   yes = Constant <value = bool {1}> ()
"""


@pytest.mark.parametrize("call", ["(x)", "(x, ratio)", "(x, ratio, no)", "(x, , no)"])
def test_an_output_is_an_identity_of_its_input(call: str) -> None:
    model = folded(f"g (float[2,3] x) => (float[2,3] y) {{ {CONSTANTS} [drop] y = Dropout {call} }}")
    assert rewritten(model, remove_dropout) == ["Identity"]
    assert model.graph[0].name == "drop"


def test_a_mask_that_is_an_output_is_true() -> None:
    model = folded(
        f"g (float[2,3] x) => (float[2,3] y, bool[2,3] m) {{ {CONSTANTS} y, m = Dropout (x, ratio) }}"
    )
    assert rewritten(model, remove_dropout) == ["Identity", "Identity"]
    (mask,) = [node for node in model.graph if node.outputs[0].name == "m"]
    kept = array_of(mask.inputs[0])
    assert kept is not None
    assert kept.dtype == np.bool_
    assert kept.all()


def test_a_mask_that_is_read_is_a_weight() -> None:
    model = folded(
        "g (float[2,3] x) => (float[2,3] y, bool[2,3] n) { y, m = Dropout (x)  n = Not (m) }",
    )
    assert rewritten(model, remove_dropout) == ["Identity", "Not"]


def test_in_a_branch() -> None:
    text = """g (float[2,3] x, bool c) => (float[2,3] y) {
        y = If (c) <then_branch = t () => (float[2,3] a) { a = Dropout (x) },
                    else_branch = e () => (float[2,3] b) { b, m = Dropout (x)  n = Not (m) }>
    }"""
    model = folded(text)
    assert rewritten(model, remove_dropout) == ["If"]
    assert "Dropout" not in [node.op_type for node in model.graph.all_nodes()]


@pytest.mark.parametrize(
    ("inputs", "call"),
    [("", "(x, ratio, yes)"), (", bool t", "(x, ratio, t)")],
    ids=["trains", "may_train"],
)
def test_training_stays(inputs: str, call: str) -> None:
    """Not compared in numbers: the answer is random."""
    model = folded(f"g (float[2,3] x{inputs}) => (float[2,3] y) {{ {CONSTANTS} y = Dropout {call} }}")
    assert not remove_dropout(model)
    assert [node.op_type for node in model.graph] == ["Dropout"]


def test_one_that_drops_nothing_is_removed_in_training_too() -> None:
    model = folded(
        """g (float[2,3] x) => (float[2,3] y, bool[2,3] mask) {
        ratio = Constant <value = float {0}> ()   on = Constant <value = bool {1}> ()
        y, mask = Dropout (x, ratio, on) }"""
    )
    want = answers(model)
    assert remove_dropout(model)
    assert "Dropout" not in ops(model)
    assert_same(want, model, np.inf)


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
NUMBERS = """
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
    nodes = f"{NUMBERS} n = Neg (x)  t = {NOTHING[name]}  y = Relu (t)"
    model = folded(f"g (float[2,3,4] x) => (float[2,3,4] y) {{ {nodes} }}")
    assert rewritten(model, remove_identities) == ["Neg", "Relu"]


@pytest.mark.parametrize("name", SOMETHING)
def test_kept(name: str) -> None:
    sources = "n = Neg (x)  i = Cast <to=7> (x)  m = ReduceMean (x)"
    nodes = f"{NUMBERS} {sources}  t = {SOMETHING[name]}  y = Relu (t)"
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
