"""Other forms of Q/DQ pairs, rewritten: the same answers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_tensorrt.quantized_forms import symmetric_pairs

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from tests.conformance.case import Case
from tests.targets.engine_trial import feeds
from tests.targets.tensorrt.corpus import IMAGE

pytestmark = pytest.mark.needs_ort
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
