"""What computes in float16 and what stays float32, by the types of the graph."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edgekit_tensorrt.fp16_graph import with_fp16_arithmetic
from edgekit_tensorrt.reference_executor import with_roundings

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from tests.conformance.case import Case
from tests.targets.engine_trial import feeds
from tests.targets.tensorrt.corpus import CONV, IMAGE, PAIR, SCALES, WEIGHTS


def half(case: Case) -> ir.Model:
    model = with_fp16_arithmetic(ir.from_proto(case.model()))
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(model)), full_check=True)
    return model


def types(model: ir.Model) -> dict[str, str]:
    """Type of the first output of each node, without the casts."""
    found = {}
    for node in model.graph:
        if node.op_type != "Cast" and node.outputs[0].dtype is not None:
            found[str(node.name)] = node.outputs[0].dtype.name
    return found


def casts(model: ir.Model) -> int:
    return sum(node.op_type == "Cast" for node in model.graph)


BODY = "a = Conv<pads=[1,1,1,1]>(x, w, b)\nr = Relu(a)\nc = Conv(r, v)\ny = Sigmoid(c)"
TWO = Case("two", IMAGE, BODY, "float[4,3,3,3] w, float[4] b, float[2,4,1,1] v")


def test_float16_from_the_first_op_with_weights_to_the_last() -> None:
    model = half(TWO)
    assert types(model) == {
        "Conv_0": "FLOAT16",
        "Relu_1": "FLOAT16",
        "Conv_2": "FLOAT16",
        "Sigmoid_3": "FLOAT",
    }
    assert casts(model) == 2
    assert {str(v.dtype) for v in model.graph.initializers.values()} == {"FLOAT16"}
    assert [(v.name, str(v.dtype)) for v in (*model.graph.inputs, *model.graph.outputs)] == [
        ("x", "FLOAT"),
        ("y", "FLOAT"),
    ]


def test_the_model_that_is_given_stays_as_it_is() -> None:
    given = ir.from_proto(TWO.model())
    before = save_model(given)
    with_fp16_arithmetic(given)
    assert save_model(given) == before


def test_an_output_that_is_computed_in_float16_keeps_its_name_and_type() -> None:
    case = Case(
        "out", IMAGE, "y = Conv(x, w)\nz = Conv(y, v)", "float[4,3,3,3] w, float[2,4,1,1] v", outputs="y, z"
    )
    model = half(case)
    assert [(v.name, str(v.dtype)) for v in model.graph.outputs] == [("y", "FLOAT"), ("z", "FLOAT")]
    assert types(model) == {"Conv_0": "FLOAT16", "Conv_1": "FLOAT16"}


KEPT = {
    "a constant beyond its range": ("m = Mul(x, k)", "float k = {70000.0}"),
    "an epsilon below its numbers": ("m = Add(x, k)", "float k = {0.00001}"),
    "a power": ("m = Pow(x, k)", "float k = {2.0}"),
    "a sum of squares": ("m = ReduceSumSquare<keepdims=1>(x, k)", "int64[1] k = {1}"),
    "a normalization": ("m = LayerNormalization(x, k)", "float[8] k = {1,1,1,1,1,1,1,1}"),
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_float16_gets_wrong_stays_float32(body: tuple[str, str]) -> None:
    lines, constants = body
    channels = 1 if "Reduce" in lines else 3
    case = Case("kept", IMAGE, f"{lines}\ny = Conv(m, w)", f"{constants}, float[4,{channels},3,3] w")
    kinds = list(types(half(case)).values())
    assert kinds == ["FLOAT", "FLOAT16"]


def test_a_conv_whose_sums_cancel_stays_float32_with_its_input() -> None:
    body = "a = Conv(x, w)\nr = Relu(a)\nc = Conv(r, v, b)\nd = Conv(c, u)\ny = Relu(d)"
    weights = "float[4,3,1,1] w, float[2,4,1,1] v, float[2] b = {1.0, -70.0}, float[2,2,1,1] u"
    model = half(Case("cancels", IMAGE, body, weights))
    assert list(types(model).values()) == ["FLOAT", "FLOAT", "FLOAT", "FLOAT16", "FLOAT"]


def test_scales_of_a_resize_stay_float32() -> None:
    body = "a = Conv(x, w)\nr = Resize(a, , s)\ny = Conv(r, v)"
    model = half(Case("resize", IMAGE, body, "float[4,3,1,1] w, float[4] s = {1,1,2,2}, float[2,4,1,1] v"))
    assert model.graph.initializers["s"].dtype == ir.DataType.FLOAT
    assert types(model)["Resize_1"] == "FLOAT16"


def test_pairs_take_the_type_of_what_is_around_them() -> None:
    body = (
        PAIR
        + CONV.replace("y =", "c =")
        + "\nq2 = QuantizeLinear(c, s, z)\nd2 = DequantizeLinear(q2, s, z)\n"
    )
    body += "f = DequantizeLinear<axis=0>(v, t, u)\ny = Conv(d2, f)"
    model = half(Case("pairs", IMAGE, body, f"{SCALES}, {WEIGHTS}, int8[4,4,1,1] v", opset=19))
    kinds = types(model)
    assert kinds["Conv_3"] == kinds["Conv_7"] == "FLOAT16"
    assert casts(model) == 1  # the output: both sides of each pair agree, the input is quantized from float32


def test_a_pair_with_a_tiny_scale_stays_float32_with_its_reader() -> None:
    weights = WEIGHTS.replace("0.01,0.02,0.03,0.04", "0.01,0.02,0.00001,0.04")
    model = half(Case("tiny", IMAGE, PAIR + CONV, f"{SCALES}, {weights}", opset=19))
    assert casts(model) == 0
    assert "FLOAT16" not in types(model).values()


@pytest.mark.needs_ort
@pytest.mark.parametrize("body", [BODY, BODY.replace("Sigmoid(c)", "Identity(c)")])
def test_it_computes_the_same_to_eleven_bits(body: str) -> None:
    given = ir.from_proto(Case("same", IMAGE, body, "float[4,3,3,3] w, float[4] b, float[2,4,1,1] v").model())
    expected = Reference(given).run(feeds(given))
    got = Reference(with_roundings(with_fp16_arithmetic(given))).run(feeds(given))
    np.testing.assert_allclose(got["y"], expected["y"], rtol=0, atol=4e-3)
    assert not np.array_equal(got["y"], expected["y"])


@pytest.mark.needs_ort
def test_the_stand_in_rounds_where_onnx_runtime_does_not() -> None:
    """300 * 300 is infinite in float16; ONNX Runtime's CPU computes it in float32."""
    text = "a = Cast<to=10>(x)\nb = Mul(a, a)\nc = Sqrt(b)\ny = Cast<to=1>(c)"
    model = ir.from_proto(Case("overflow", "float[2] x", text).model())
    x = np.array([3.0, 300.0], np.float32)
    assert Reference(model).run({"x": x})["y"].tolist() == [3.0, 300.0]
    assert Reference(with_roundings(model)).run({"x": x})["y"].tolist() == [3.0, np.inf]
