from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.node_evaluation import evaluate_node
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes.fold_constants import fold_constants
from tests.compiler.passes.meaning import model_of, rewritten

pytestmark = pytest.mark.needs_ort


def test_a_shape_chain_becomes_numbers() -> None:
    model = model_of("""g (float[2,3,4] x) => (float[2,12] y) {
        s = Shape (x)
        zero = Constant <value = int64[1] {0}> ()
        batch = Gather (s, zero)
        rest = Constant <value = int64[1] {-1}> ()
        shape = Concat <axis=0> (batch, rest)
        y = Reshape (x, shape)
    }""")
    assert rewritten(model, fold_constants) == ["Reshape"]
    shape = array_of(model.graph[0].inputs[1])
    assert shape is not None
    assert shape.tolist() == [2, -1]
    assert model.graph[0].inputs[1] is model.graph.initializers["shape"]


def test_weights_are_computed_ahead_and_their_sources_dropped() -> None:
    model = model_of(
        "g (float[2,3] x) => (float[2,4] y) { t = Transpose <perm=[1,0]> (w)  y = MatMul (x, t) }",
        w=np.arange(12, dtype=np.float32).reshape(4, 3),
    )
    assert rewritten(model, fold_constants) == ["MatMul"]
    assert list(model.graph.initializers) == ["t"]


def test_a_constant_output_keeps_its_name() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y, float[2] c) {"
        " c = Constant <value = float[2] {1, 2}> ()  y = Neg (x) }"
    )
    assert rewritten(model, fold_constants) == ["Identity", "Neg"]


def test_a_quantized_weight_stays_quantized() -> None:
    model = model_of(
        "g (float[2,3] x) => (float[2,4] y) { t = DequantizeLinear (w, s)  y = MatMul (x, t) }",
        w=np.ones((3, 4), np.int8),
        s=0.1,
    )
    assert rewritten(model, fold_constants) == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize(("columns", "left"), [(1000, ["Add"]), (1_000_000, ["Expand", "Add"])])
def test_an_expansion_is_folded_only_while_it_is_small(columns: int, left: list[str]) -> None:
    model = model_of(
        f"g (float[1,{columns}] x) => (float[1,{columns}] y) {{ e = Expand (w, s)  y = Add (x, e) }}",
        w=[[2.0]],
        s=np.array([1, columns], np.int64),
    )
    assert rewritten(model, fold_constants) == left


def test_random_numbers_are_not_constants() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { r = RandomNormal <shape=[2]> ()  y = Add (x, r) }")
    fold_constants(model)
    assert [node.op_type for node in model.graph] == ["RandomNormal", "Add"]


def test_inside_of_branches_too() -> None:
    model = model_of(
        """g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] a) { k = Neg (w)  a = Add (x, k) },
                    else_branch = e () => (float[2] b) { b = Identity (x) }>
    }""",
        w=[1.0, 2.0],
    )
    assert rewritten(model, fold_constants) == ["If"]
    assert [n.op_type for n in model.graph[0].attributes["then_branch"].as_graph()] == ["Add"]


SHARED = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)


def test_layers_that_share_a_weight_share_its_transpose() -> None:
    model = model_of(
        """g (float[2,40] x) => (float[2,40] y) {
        i = Identity (w)  j = Identity (w)
        s = Transpose <perm=[1,0]> (i)  t = Transpose <perm=[1,0]> (j)  u = Transpose <perm=[1,0]> (w)
        a = MatMul (x, s)  b = MatMul (a, t)  c = MatMul (b, u)  y = MatMul (c, i)
    }""",
        w=SHARED,
    )
    assert rewritten(model, fold_constants) == ["MatMul"] * 4
    assert list(model.graph.initializers) == ["w", "s"]


def test_other_attributes_are_other_weights() -> None:
    model = model_of(
        """g (float[2,40] x) => (float[2,40] y) {
        s = Transpose <perm=[1,0]> (w)  t = Transpose <perm=[0,1]> (w)
        a = MatMul (x, s)  y = MatMul (a, t)
    }""",
        w=SHARED,
    )
    assert rewritten(model, fold_constants) == ["MatMul"] * 2
    assert list(model.graph.initializers) == ["s", "t"]


def test_a_computation_on_shared_weights_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str | None] = []

    def counted(node: ir.Node, *rest: Any) -> Any:
        evaluated.append(node.name)
        return evaluate_node(node, *rest)

    model = model_of(
        """g (float[2,40] x) => (float[2,40] y) {
        s = Transpose <perm=[1,0]> (w)  t = Transpose <perm=[1,0]> (w)
        a = MatMul (x, s)  y = MatMul (a, t)
    }""",
        w=SHARED,
    )
    monkeypatch.setattr("edgekit.compiler.model.shape_inference.evaluate_node", counted)
    known = infer_shapes(model, 1 << 20, 2.0).constants
    assert evaluated == ["Transpose_0"]
    assert known[model.graph[0].outputs[0]] is known[model.graph[1].outputs[0]]
