from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.inline_if import inline_if
from tests.compiler.passes.meaning import folded, model_of, ops, rewritten

pytestmark = pytest.mark.needs_ort

TEXT = """g (float[2,3] x) => (float[2,3] y, float[2,3] z) {{
    c = Constant <value = bool {{ {0} }}> ()
    n = Neg (x)
    w = Constant <value = float[1,3] {{1, 2, 3}}> ()
    y = If (c) <then_branch = t () => (float[2,3] a) {{ k = Relu (n)  a = Add (k, w) }},
                else_branch = e () => (float[2,3] b) {{ k = Abs (n)   b = Sub (k, w) }}>
    z = If (c) <then_branch = t () => (float[2,3] a) {{ k = Exp (x)  a = Identity (n) }},
                else_branch = e () => (float[2,3] b) {{ b = Identity (n) }}>
}}"""


@pytest.mark.parametrize(("condition", "left"), [(1, ["Neg", "Relu", "Add"]), (0, ["Neg", "Abs", "Sub"])])
def test_the_branch_that_is_taken_comes_out(condition: int, left: list[str]) -> None:
    model = folded(TEXT.format(condition))
    assert [op for op in rewritten(model, inline_if) if op != "Identity"] == left
    assert [value.name for value in model.graph.outputs] == ["y", "z"]


def test_nested_conditions_are_decided_by_what_comes_out() -> None:
    model = folded(
        """g (float[2,1,3] x) => (float[2,3] y) {
        c = Constant <value = bool {1}> ()
        y = If (c) <then_branch = t () => (float[2,3] a) {
                s = Shape <start=1, end=2> (x)
                one = Constant <value = int64[1] {1}> ()
                thin = Equal (s, one)
                a = If (thin) <then_branch = tt () => (float[2,3] aa) { aa = Squeeze (x, one) },
                               else_branch = te () => (float[2,1,3] ab) { ab = Identity (x) }>
            },
            else_branch = e () => (float[2,1,3] b) { b = Neg (x) }>
    }"""
    )
    assert [op for op in rewritten(model, inline_if) if op != "Identity"] == ["Squeeze"]


def test_a_branch_that_cannot_work_is_not_taken() -> None:
    model = model_of(
        """g (float[1,6] x, int64 rate) => (float[1,2] y) {
        k = Constant <value = int64 {16000}> ()
        c = Equal (rate, k)
        y = If (c) <then_branch = t () => (float[1,2] a) { a = MatMul (x, w6) },
                    else_branch = e () => (float[1,2] b) { b = MatMul (x, w3) }>
    }""",
        w6=np.ones((6, 2), np.float32),
        w3=np.ones((3, 2), np.float32),
    )
    assert inline_if(model)
    assert [op for op in ops(model) if op != "Identity"] == ["MatMul"]
    assert [value.name for value in model.graph.inputs] == ["x", "rate"]


def test_an_open_condition_stays() -> None:
    model = folded(
        """g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { a = Relu (x) },
                    else_branch = e () => (float[2] b) { b = Neg (x) }>
    }"""
    )
    assert rewritten(model, inline_if) == ["If"]
