"""Newer operators and other forms of Q/DQ pairs, rewritten: the same answers, and nothing newer left."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_tensorrt.expand import expand_newer
from edgekit_tensorrt.quantized_forms import symmetric_pairs

from edgekit.model_file import save_model
from edgekit.older_opset import with_opset
from edgekit.reference import Reference
from tests.conformance.case import Case
from tests.targets.engine_trial import feeds
from tests.targets.tensorrt.corpus import IMAGE

pytestmark = pytest.mark.needs_ort
QKV = "float[1,2,5,4] q, float[1,2,6,4] k, float[1,2,6,3] v"
NEWER = [
    Case("attention", QKV, "y = Attention(q, k, v)"),
    Case("attention_scale", QKV, "y = Attention<scale=0.3>(q, k, v)"),
    Case("attention_mask", f"{QKV}, float[5,6] m", "y = Attention(q, k, v, m)"),
    Case(
        "group_norm",
        "float[1,6,4,3] x",
        "y = GroupNormalization<num_groups=3>(x, s, b)",
        "float[6] s, float[6] b",
        outputs="float[1,6,4,3] y",
    ),
    Case("rms_norm", "float[2,5,8] x", "y = RMSNormalization<epsilon=0.001>(x, s)", "float[8] s"),
    Case("rms_norm_axis", "float[2,5,8] x", "y = RMSNormalization<axis=1>(x, s)", "float[5,8] s"),
]


@pytest.mark.parametrize("case", NEWER, ids=lambda case: case.name)
def test_newer_operators_say_the_same_in_an_older_opset(case: Case) -> None:
    given = ir.from_proto(case.model())
    expected = Reference(given).run(feeds(given))
    expanded = given.clone()
    expand_newer(expanded)
    older = with_opset(expanded, 19)
    assert older is not None
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(older)), full_check=True)
    got = Reference(older).run(feeds(given))
    np.testing.assert_allclose(got["y"], expected["y"], rtol=1e-5, atol=1e-6)
    assert [(v.name, v.shape) for v in older.graph.outputs] == [
        (v.name, v.shape) for v in given.graph.outputs
    ]


@pytest.mark.parametrize("attributes", ["<is_causal=1>", "<softcap=2.0>"])
def test_another_attention_stays(attributes: str) -> None:
    model = ir.from_proto(Case("a", QKV, f"y = Attention{attributes}(q, k, v)").model())
    expand_newer(model)
    assert [node.op_type for node in model.graph] == ["Attention"]


UINT8 = (
    "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
    "e = DequantizeLinear<axis=0>(w, t, u)\nc = DequantizeLinear<axis=0>(b, v)\n"
    "y = Conv<pads=[1,1,1,1]>(d, e, c)"
)
WEIGHTS = "int8[4,3,3,3] w, float[4] t = {0.01,0.02,0.03,0.04}, int8[4] u = {0,0,0,0}"
BIAS = "int32[4] b, float[4] v = {0.0005,0.001,0.0015,0.002}"


def test_uint8_around_128_and_an_int32_bias_become_tensorrts_form() -> None:
    case = Case("u", IMAGE, UINT8, f"float s = {{0.05}}, uint8 z = {{128}}, {WEIGHTS}, {BIAS}", opset=19)
    given = ir.from_proto(case.model())
    expected = Reference(given).run(feeds(given))
    model = given.clone()
    symmetric_pairs(model)
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(model)), full_check=True)
    assert {v.dtype for n in model.graph if n.op_type == "QuantizeLinear" for v in n.outputs} == {
        ir.DataType.INT8
    }
    assert [n.op_type for n in model.graph].count("DequantizeLinear") == 2
    np.testing.assert_array_equal(Reference(model).run(feeds(given))["y"], expected["y"])


@pytest.mark.parametrize("zero", [0, 127, 3])
def test_another_zero_point_stays(zero: int) -> None:
    case = Case("u", IMAGE, UINT8, f"float s = {{0.05}}, uint8 z = {{{zero}}}, {WEIGHTS}, {BIAS}", opset=19)
    model = ir.from_proto(case.model())
    symmetric_pairs(model)
    assert [v.dtype for n in model.graph if n.op_type == "QuantizeLinear" for v in n.outputs] == [
        ir.DataType.UINT8
    ]


def test_uint8_weights_around_128_become_int8() -> None:
    weights = "uint8[4,3,3,3] w, float[4] t = {0.01,0.02,0.03,0.04}, uint8[4] u = {128,128,128,128}"
    case = Case("w", IMAGE, "e = DequantizeLinear<axis=0>(w, t, u)\ny = Conv(x, e)", weights, opset=19)
    given = ir.from_proto(case.model())
    model = given.clone()
    symmetric_pairs(model)
    (pair,) = (node for node in model.graph if node.op_type == "DequantizeLinear")
    assert pair.inputs[0] is not None
    assert pair.inputs[0].dtype == ir.DataType.INT8
    np.testing.assert_array_equal(
        Reference(model).run(feeds(given))["y"], Reference(given).run(feeds(given))["y"]
    )


def test_integers_that_somebody_else_reads_stay() -> None:
    body = "y = QuantizeLinear(x, s, z)\nd = DequantizeLinear(y, s, z)\nw = Relu(d)"
    case = Case("o", "float[4] x", body, "float s = {0.05}, uint8 z = {128}", outputs="y, w", opset=19)
    model = ir.from_proto(case.model())
    symmetric_pairs(model)
    assert [str(v.dtype) for v in model.graph.outputs] == ["UINT8", "FLOAT"]
