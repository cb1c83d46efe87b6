from __future__ import annotations

import pytest

from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.passes.expand_functions import expand_functions
from tests.compiler.passes.meaning import answers, assert_same, folded, ops

pytestmark = pytest.mark.needs_ort

LOSS = """g (float[3,5] x, int64[3] labels) => (float[] loss, float[3,5] y) {
    scaled = Relu (x)
    loss, y = SoftmaxCrossEntropyLoss <reduction = "mean"> (scaled, labels)
}"""
ATTENTION = """g (float[1,2,3,8] q, float[1,2,4,8] k, float[1,2,4,8] v) =>
    (float[1,2,3,8] y, float[1,2,3,4] qk) {
    y, , , qk = Attention <qk_matmul_output_mode = 3> (q, k, v)
}"""


@pytest.mark.parametrize(("text", "op"), [(LOSS, "SoftmaxCrossEntropyLoss"), (ATTENTION, "Attention")])
def test_the_function_gives_the_same(text: str, op: str) -> None:
    model = folded(text)
    want = answers(model)
    assert expand_functions(model, lambda node: node.op_type == op)
    assert op not in ops(model)
    assert_same(want, model)


def test_what_comes_of_a_node_is_called_by_it() -> None:
    model = folded(LOSS)
    relu, loss = model.graph
    expand_functions(model, lambda node: node is loss)
    assert {node_name(node) for node in model.graph} == {relu.name, loss.name}
    names = [node.name for node in model.graph]
    assert len(set(names)) == len(names)
    values = [value.name for node in model.graph for value in node.outputs]
    assert len(set(values)) == len(values)


def test_only_what_is_wanted_and_only_what_has_a_function() -> None:
    model = folded(LOSS)
    assert not expand_functions(model, lambda node: False)
    assert ops(model) == ["Relu", "SoftmaxCrossEntropyLoss"]
    plain = folded("g (float[2] x) => (float[2] y) { y = Sin (x) }")
    assert not expand_functions(plain, lambda node: True)


def test_an_input_given_twice_and_an_output_that_is_an_input() -> None:
    model = folded("g (float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Attention (x, x, x) }")
    want = answers(model)
    assert expand_functions(model, lambda node: True)
    assert_same(want, model)
