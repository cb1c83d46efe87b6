"""A node as a matrix product: the rows that are read and the matrix give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix, product_of
from edgekit.target.quant_rules import OpRule
from edgekit.tensor_spec import Array
from tests.fixtures.graphs import Graph, samples_for

pytestmark = pytest.mark.needs_ort

CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pads at each end": ((1, 3, 7, 6), (4, 3, 3, 2), {"pads": [1, 0, 2, 1]}),
    "strides and dilations": ((1, 2, 11, 9), (3, 2, 3, 3), {"strides": [2, 1], "dilations": [1, 2]}),
    "a batch": ((2, 3, 5, 5), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "groups": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "depthwise": ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "depthwise times two": ((1, 4, 5, 5), (8, 1, 3, 3), {"group": 4}),
    "one dimension": ((2, 3, 9), (4, 3, 3), {"pads": [2, 0], "strides": [2]}),
    "three dimensions": ((1, 2, 4, 5, 3), (3, 2, 2, 2, 2), {"pads": [1, 0, 0, 0, 1, 0]}),
}


def product(g: Graph, folder: Path, made: str, rule: OpRule) -> tuple[WeightMatrix, Array, Array]:
    """The product, an input of it and its output."""
    model = g.model(folder, made)
    sample = samples_for(model, 1)[0]
    node = next(node for node in model.graph if node.op_type == rule.op)
    found = product_of(node, rule)
    assert found is not None
    name = str(node.outputs[0].name)
    y = Reference(model, intermediate=[] if name == made else [name]).run(sample)[name]
    return found, next(iter(sample.values())), y


def check(one: WeightMatrix, x: Array, y: Array) -> None:
    flat = one.outputs(y)
    at = np.arange(flat.shape[1])[::-1]
    rows = one.rows(one.by_channel(x + 3), np.array(3, np.float32), at)
    result = one.alpha * np.einsum("gok,gkp->gop", one.matrix(), rows).reshape(len(flat), -1)
    if one.own_bias and one.bias is not None:
        result += one.beta * one.bias[:, None]
    np.testing.assert_allclose(result, flat[:, at], atol=2e-5)
    assert (one.from_matrix(one.matrix()) == one.weights).all()


@pytest.mark.parametrize("case", CONVS)
def test_conv(tmp_path: Path, case: str) -> None:
    shape, weights, attributes = CONVS[case]
    g = Graph({"x": shape})
    made = g("Conv", "x", g.weights(*weights), g.weights(weights[0]), **attributes)
    check(*product(g, tmp_path, made, OpRule("Conv", "own", "", (0,), 1, 0, bias=2)))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [(1,), (1, 6), None])
def test_gemm(tmp_path: Path, turned: int, bias: tuple[int, ...] | None) -> None:
    g = Graph({"x": (4, 3) if turned else (3, 4)})
    weights = g.weights(*((6, 4) if turned else (4, 6)))
    constants = [] if bias is None else [g.weights(6).reshape(6 if bias == (1,) else bias)]
    made = g("Gemm", "x", weights, *constants, transA=turned, transB=turned, alpha=0.5, beta=2.0)
    rule = OpRule("Gemm", "own", "", (0,), 1, 0 if turned else 1, bias=2)
    one, x, y = product(g, tmp_path, made, rule)
    check(one, x, y)
    assert (one.original_bias is None) == (bias is None)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 2, 3, 4)])
def test_matmul_of_any_rank(tmp_path: Path, shape: tuple[int, ...]) -> None:
    g = Graph({"x": shape})
    made = g("MatMul", "x", g.weights(4, 5))
    one, x, y = product(g, tmp_path, made, OpRule("MatMul", "own", "", (0,), 1, 1))
    check(one, x, y)
    assert one.bias is None


def test_the_bias_of_a_matmul_is_the_add_behind_it(tmp_path: Path) -> None:
    g = Graph({"x": (2, 3, 4)})
    made = g("Add", g("MatMul", "x", g.weights(4, 5)), np.arange(5, dtype=np.float32))
    one, x, y = product(g, tmp_path, made, OpRule("MatMul", "own", "", (0,), 1, 1))
    check(one, x, y)
    assert one.bias is not None
    assert one.bias.tolist() == [0, 1, 2, 3, 4]
    assert not one.own_bias


def test_a_value_for_each_row_is_no_bias(tmp_path: Path) -> None:
    """Though there are as many rows as columns."""
    g = Graph({"x": (2, 5, 4)})
    made = g("Add", g("MatMul", "x", g.weights(4, 5)), np.ones((5, 1), np.float32))
    one, _, _ = product(g, tmp_path, made, OpRule("MatMul", "own", "", (0,), 1, 1))
    assert one.bias is None


def test_kernels_without_pairs(tmp_path: Path) -> None:
    """Depthwise kernels add in int32, and no engine has an integer ConvTranspose that adds in int16."""
    rule = OpRule("Conv", "own", "", (0,), 1, 0, bias=2)
    counts = {}
    for case in ("depthwise", "depthwise times two", "groups"):
        shape, weights, attributes = CONVS[case]
        g = Graph({"x": shape})
        made = g("Conv", "x", g.weights(*weights), g.weights(weights[0]), **attributes)
        counts[case] = len(product(g, tmp_path, made, rule)[0].pairs())
    assert counts == {"depthwise": 0, "depthwise times two": 4, "groups": 17}
