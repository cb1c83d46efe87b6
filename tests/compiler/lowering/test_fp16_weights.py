"""Weights in half precision, and floats wider than float32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.fp16_types import narrowed_floats
from edgekit.compiler.lowering.fp16_weights import with_fp16_weights
from edgekit.compiler.model.reference import Reference
from tests.compiler.passes.meaning import model_of
from tests.targets.engine_trial import product


def test_a_large_weight_becomes_half_and_a_cast() -> None:
    model = product()
    halved = with_fp16_weights(model)
    assert [node.op_type for node in halved.graph] == ["Cast", "MatMul"]
    assert {k: str(v.dtype) for k, v in halved.graph.initializers.items()} == {"w/fp16": "FLOAT16"}
    x = {"x": np.ones((1, 64), np.float32)}
    exact, rounded = Reference(model).run(x)["y"], Reference(halved).run(x)["y"]
    assert 1e-5 < np.linalg.norm(rounded - exact) / np.linalg.norm(exact) < 1e-3


def test_the_model_that_is_given_stays_as_it_is() -> None:
    model = product()
    with_fp16_weights(model)
    assert [node.op_type for node in model.graph] == ["MatMul"]
    assert str(model.graph.initializers["w"].dtype) == "FLOAT"


@pytest.mark.parametrize("value", [1e6, np.inf])
def test_weights_beyond_the_range_of_half_stay(value: float) -> None:
    model = product()
    weights = np.full((64, 64), value, np.float32)
    model.graph.initializers["w"].const_value = ir.tensor(weights, name="w")
    assert list(with_fp16_weights(model).graph.initializers) == ["w"]


def test_scales_of_quantized_weights_stay() -> None:
    """A cast between a scale and its DequantizeLinear hides the pair from the engines."""
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 23]> g (uint8[4096] q) => (float[4096] y)'
        "<float[4096] s = {" + ",".join(["0.5"] * 4096) + "}> { y = DequantizeLinear<axis = 0>(q, s) }"
    )
    assert list(with_fp16_weights(model).graph.initializers) == ["s"]


def test_weights_in_branches_are_halved_too() -> None:
    ones = ",".join(["1"] * 4096)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 23]> g (bool c) => (float[4096] y) { y = If (c) <'
        f"then_branch = a () => (float[4096] p) <float[4096] w = {{{ones}}}> {{ p = Relu(w) }},"
        f"else_branch = b () => (float[4096] q) <float[4096] v = {{{ones}}}> {{ q = Neg(v) }}> }}"
    )
    halved = with_fp16_weights(model)
    assert [node.op_type for node in halved.graph.all_nodes()].count("Cast") == 2
    for chosen, expected in ((True, 1.0), (False, -1.0)):
        assert set(Reference(halved).run({"c": np.asarray(chosen)})["y"]) == {expected}


def test_float64_is_told_once() -> None:
    model = model_of("g (double[2] x) => (double[2] y) { h = Neg (x) y = Abs (h) }")
    (finding,) = narrowed_floats(model, "tflite")
    assert (finding.code, finding.severity, finding.node, finding.op) == ("EK1108", "warning", "x", "")
    assert finding.message == "it is float64, but computed in float32; so are 2 more"


def test_nothing_is_said_of_float32() -> None:
    assert narrowed_floats(model_of("g (float[2] x) => (float[2] y) { y = Abs (x) }"), "tflite") == []
