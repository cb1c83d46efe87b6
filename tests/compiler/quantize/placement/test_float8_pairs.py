"""Pairs of float8, and weights that stay float."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tensorrt.quant_rules import rules

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.float8_pairs import LARGEST, with_float8_pairs
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.placement.kernels import find_kernels
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.graphs import Graph, samples_for
from tests.fixtures.quant_rules import RULES, SHAPE
from tests.targets.engine_trial import product, with_shapes

pytestmark = pytest.mark.needs_ort

CONV = """
<ir_version: 10, opset_import: ["": 23]>
conv (float[1,2,8,8] x) => (float[1,3,8,8] y)
<float[3,2,1,1] w = {1,-2,0,0,5,127}, float[3] b = {10,20,30}>
{
    c = Conv(x, w, b)
    y = Relu(c)
}
"""


def quantized(model: ir.Model, sample: dict[str, Array]) -> ir.Model:
    run_passes(model)
    thor = rules(find_profile("jetson-thor"))
    return with_float8_pairs(model, thor, observe(model, [sample]))[0]


def test_scales_reach_the_largest_value_and_weights_are_rounded_by_channel() -> None:
    sample = {"x": np.linspace(-3, 7, 128, dtype=np.float32).reshape(1, 2, 8, 8)}
    model = quantized(with_shapes(CONV), sample)
    (pair,) = (node for node in model.graph if node.op_type == "QuantizeLinear")
    assert pair.outputs[0].dtype == ir.DataType.FLOAT8E4M3FN
    scale = array_of(pair.inputs[1])
    assert scale is not None
    np.testing.assert_allclose(scale, 7 / LARGEST, rtol=1e-6)
    conv = next(node for node in model.graph if node.op_type == "Conv")
    weights = conv.inputs[1].producer()  # type: ignore[union-attr]
    assert weights is not None
    stored, scale = array_of(weights.inputs[0]), array_of(weights.inputs[1])
    assert stored is not None
    assert scale is not None
    assert stored.dtype == ml_dtypes.float8_e4m3fn
    np.testing.assert_allclose(
        scale, [2 / LARGEST, 1, 127 / LARGEST], rtol=1e-6
    )  # no channel is divided by 0
    real = stored.astype(np.float32).reshape(3, 2) * scale[:, None]
    wanted = np.array([[1, -2], [0, 0], [5, 127]], np.float32)
    assert np.abs(real - wanted).max() <= np.abs(wanted).max() / 16
    assert (np.abs(real - wanted) <= np.abs(wanted) / 16 + 1e-6).all()
    bias = array_of(conv.inputs[2])
    assert bias is not None
    assert bias.tolist() == [10, 20, 30]


def test_a_product_is_as_near_as_three_bits_allow() -> None:
    """Each factor is rounded to 4 significant bits: errors of 2^-4 / sqrt(3) of it at most, 26 to 32 dB."""
    model = product()
    sample = {"x": np.random.default_rng(2).standard_normal((1, 64)).astype(np.float32)}
    expected = Reference(model).run(sample)["y"]
    answer = Reference(quantized(model, sample)).run(sample)["y"]
    assert 24 < snr_db(expected, answer) < 40


def test_the_answers_are_the_same_and_the_layers_are_seen(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    scales = np.array([0.01, 0.02, 0.005, 0.1], np.float32)
    real = g("DequantizeLinear", weights, scales, np.zeros(4, np.int8), axis=0)
    conv = g("Conv", "x", real)
    scale, zero = np.array(0.1, np.float32), np.array(3, np.int8)
    pair = g("DequantizeLinear", g("QuantizeLinear", conv, scale, zero), scale, zero)
    model = g.model(tmp_path, g.conv(pair, 2, 4))
    before = save_model(model)
    other = with_float_weights(model)
    assert [node.op_type for node in other.graph] == ["Conv", "QuantizeLinear", "DequantizeLinear", "Conv"]
    assert conv in [kernel.name for kernel in find_kernels(other, RULES)]
    assert conv not in [kernel.name for kernel in find_kernels(model, RULES)]
    x = samples_for(model)[0]
    exact, found = Reference(model).run(x), Reference(other).run(x)
    assert all(np.array_equal(exact[name], found[name]) for name in exact)
    assert save_model(model) == before


def test_a_float_model_is_itself(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    model = g.model(tmp_path, g.conv("x", 4, 4))
    assert with_float_weights(model) is model
