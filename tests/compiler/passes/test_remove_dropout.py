from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes.remove_dropout import remove_dropout
from tests.compiler.passes.meaning import answers, assert_same, folded, ops, rewritten

pytestmark = pytest.mark.needs_ort

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
