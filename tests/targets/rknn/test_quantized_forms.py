"""Pairs as the toolkit reads them: the same numbers, and no zero point of 0."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_rknn.quantized_forms import write_pairs

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of, input_of

pytestmark = pytest.mark.needs_ort

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
