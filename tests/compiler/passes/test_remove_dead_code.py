from __future__ import annotations

import pytest

from edgekit.compiler.passes.remove_dead_code import remove_dead_code
from tests.compiler.passes.meaning import model_of, rewritten

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
