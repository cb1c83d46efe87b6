"""Forms that the RKNN compiler takes: explicit pads and averages, quantized weights."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_rknn import compile as rknn
from edgekit_rknn.quantized_forms import refused_forms, write_forms, write_pairs

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of, input_of
from edgekit.target.installed_profiles import find_profile
from tests.targets.engine_trial import with_shapes

pytestmark = pytest.mark.needs_ort

POOL = """
<ir_version: 10, opset_import: ["": 23]>
pool (float[1,3,9,7] x) => (float[1,3,H,W] y) { y = AveragePool<ATTRIBUTES>(x) }
"""
TRANSPOSED = """
<ir_version: 10, opset_import: ["": 23]>
up (float[1,3,5,5] x, float[3,4,3,3] w) => (float[1,4,H,W] y) { y = ConvTranspose<ATTRIBUTES>(x, w) }
"""


def changed(text: str, attributes: str, size: str) -> tuple[list[str], float]:
    """The operators afterwards, and the largest difference of the output."""
    model = with_shapes(text.replace("ATTRIBUTES", attributes).replace("H,W", size))
    random = np.random.default_rng(5)
    feed = {
        str(value.name): random.normal(size=[int(str(n)) for n in value.shape or ()]).astype(np.float32)
        for value in model.graph.inputs
    }
    before = Reference(model).run(feed)["y"]
    write_forms(model)
    after = Reference(model).run(feed)["y"]
    return [node.op_type for node in model.graph], float(np.abs(before - after).max())


@pytest.mark.parametrize(
    ("attributes", "size", "ops"),
    [
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", "5,4", ["Conv", "Mul"]),
        ("kernel_shape=[3,3], strides=[2,2], pads=[1,1,0,0], ceil_mode=1", "5,4", ["Conv", "Mul"]),
        ("kernel_shape=[3,2], count_include_pad=1, pads=[1,0,1,1]", "9,7", ["Conv"]),
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1, count_include_pad=1", "5,4", ["Conv", "Mul"]),
        ("kernel_shape=[2,2], strides=[2,2]", "4,3", ["AveragePool"]),
        ("kernel_shape=[3,2], count_include_pad=1, pads=[1,1,1,0]", "9,7", ["AveragePool"]),
        ("kernel_shape=[3,2], pads=[1,0,1,1]", "9,7", ["AveragePool"]),
    ],
)
def test_averages(attributes: str, size: str, ops: list[str]) -> None:
    found, difference = changed(POOL, attributes, size)
    assert found == ops
    assert difference < 1e-6


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("strides=[2,2], output_shape=[10,10]", "10,10"),
        ("strides=[3,2], output_shape=[14,10]", "14,10"),
        ('strides=[2,2], auto_pad="SAME_UPPER"', "10,10"),
        ('strides=[2,2], auto_pad="SAME_LOWER"', "10,10"),
        ('strides=[2,2], auto_pad="VALID"', "11,11"),
    ],
)
def test_pads_of_a_transposed_convolution_are_stated(attributes: str, size: str) -> None:
    text = TRANSPOSED.replace("ATTRIBUTES", attributes).replace("H,W", size)
    model = with_shapes(text)
    write_forms(model)
    (node,) = model.graph
    assert {"pads", "output_padding"} <= set(node.attributes)
    assert not {"auto_pad", "output_shape"} & set(node.attributes)
    assert changed(TRANSPOSED, attributes, size) == (["ConvTranspose"], 0.0)


def test_ends_that_are_refused_are_told_by_their_nodes() -> None:
    model = with_shapes(
        '<ir_version: 10, opset_import: ["": 23]> ends (float[1,4] x, float z) => (int64[1,4] i) '
        "{ a = Add(x, z) i = Cast<to=7>(a) }"
    )
    found = {(each.code, each.node): each.message for each in rknn.check_model(model, find_profile("rk3588"))}
    assert found == {
        ("EK1002", "z"): "the simulator does not support inputs without axes; use the shape [1]",
        ("EK1004", "i"): "INT64: the NPU supports float inputs and outputs only",
    }


def test_an_average_over_three_axes_with_pads_is_written_with_fewer() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 23]>
    deep (float[1,2,4,4,4] x) => (float[1,2,4,4,4] y)
    { y = AveragePool<kernel_shape=[3,3,3], pads=[1,1,1,1,1,1]>(x) }
    """
    padded = with_shapes(text)
    plain = with_shapes(text.replace("[1,1,1,1,1,1]", "[0,0,0,0,0,0]").replace("4,4,4] y", "2,2,2] y"))
    assert [finding.op for finding in refused_forms(padded, "rk3588")] == ["AveragePool"]
    assert not list(refused_forms(plain, "rk3588"))
    assert rknn.check_model(padded, find_profile("rk3588")) == []


@pytest.mark.parametrize(("rows", "count"), [("1", 0), ("2", 1)])
def test_integers_in_several_rows_are_refused(rows: str, count: int) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["": 23]>
    rows (float[{rows},8] x, float[8,4] w) => (float[{rows},4] y) <float s = {{0.1}}, int8 z = {{3}}>
    {{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Gemm(d, w) }}
    """
    assert [each.node for each in refused_forms(with_shapes(text), "rk3588")] == ["y"] * count


PAIRS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[1,2,4,4] x) => (float[1,2,1,1] y)
<float s = {0.05}, int8 z = {0}, float t = {0.01}, int8 u = {3},
 int8[2,2,1,1] w = {-127, 126, 127, 5}, float[2] v = {0.01, 0.02}, int8[2] o = {0, 0}>
{
    a = QuantizeLinear (x, s, z)
    b = DequantizeLinear (a, s, z)
    c = DequantizeLinear <axis = 0> (w, v, o)
    d = Conv (b, c)
    e = QuantizeLinear (d, s, z)
    f = DequantizeLinear (e, s, z)
    h = GlobalAveragePool (f)
    i = QuantizeLinear (h, t, u)
    y = DequantizeLinear (i, t, u)
}
"""


def parsed(text: str) -> ir.Model:
    import onnx

    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text), data_prop=True))


@pytest.mark.parametrize("text", [PAIRS, PAIRS.replace("(w, v, o)", "(w, v)")], ids=["all", "one has none"])
def test_the_same_numbers_without_a_zero_point_of_0(text: str) -> None:
    model = parsed(text)
    written = model.clone()
    write_pairs(written)
    pairs = [node for node in written.graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    zeros = [array_of(input_of(node, 2)) for node in pairs]
    assert len(pairs) == 8
    assert all(zero is not None and zero.all() for zero in zeros)
    assert [node.op_type for node in written.graph].count("Conv") == 2
    assert "GlobalAveragePool" not in {node.op_type for node in written.graph}
    assert not [name for name, value in written.graph.initializers.items() if not value.uses()]
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)
    (expected,), (got,) = (list(Reference(m).run({"x": x}).values()) for m in (model, written))
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_the_lowest_weight_stays_the_lowest() -> None:
    """-129 does not fit into int8, and would be 127."""
    model = parsed(PAIRS.replace("{-127, 126", "{-128, 126"))
    write_pairs(model)
    stored = [array_of(value) for name, value in model.graph.initializers.items() if name == "c/stored"]
    assert [array.ravel().tolist() for array in stored if array is not None] == [[-128, 125, 126, 4]]


def test_an_average_of_floats_stays() -> None:
    model = parsed(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalAveragePool (x) }"
    )
    write_pairs(model)
    assert [node.op_type for node in model.graph] == ["GlobalAveragePool"]
