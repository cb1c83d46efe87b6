"""Outputs of several scales, joined as 16-bit integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_tflm import vela
from edgekit_tflm.joined_ends import with_joined_ends

from edgekit.compiler.model.reference import Reference
from edgekit.target.installed_profiles import find_profile
from tests.targets.engine_trial import with_shapes
from tests.targets.tflm.networks import compiled, opened

HEAD = """
<ir_version: 10, opset_import: ["": 23]>
head (float[1,4,6,6] x) => (float[1,36,8] y)
    <float s = {0.05}, int8 z = {3}, float t = {0.00390625}, int8 u = {-128}, int64[3] flat = {1,8,36}>
{
    q = QuantizeLinear(x, s, z)
    boxes = DequantizeLinear(q, s, z)
    p = Sigmoid(boxes)
    o = QuantizeLinear(p, t, u)
    scores = DequantizeLinear(o, t, u)
    c = Concat<axis=1>(boxes, scores)
    r = Reshape(c, flat)
    y = Transpose<perm=[0,2,1]>(r)
}
"""


def test_what_has_no_scale_in_common_is_joined_in_16_bits() -> None:
    model = with_shapes(HEAD)
    ops = compiled(model).facts["ops"]
    assert (ops["QUANTIZE"], ops["DEQUANTIZE"]) == (2, 1)
    assert compiled(model).facts["float_islands"] == []
    (output,) = with_joined_ends(model).graph.outputs
    assert (output.name, str(output.dtype), str(output.shape)) == ("y", "FLOAT", "[1,36,8]")
    assert "joined" not in str([value.name for node in model.graph for value in node.outputs])


BYTES = HEAD.replace("int8 u = {-128}", "int8 u = {-128}, uint8 v = {0}").replace("t, u)", "t, v)")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEAD.replace("t = {0.00390625}, int8 u = {-128}", "t = {0.05}, int8 u = {3}"), id="one"),
        pytest.param(HEAD.replace("(boxes, scores)", "(boxes, p)"), id="a part in float"),
        pytest.param(HEAD.replace("r = Reshape(c, flat)", "d = Reshape(c, flat) r = Exp(d)"), id="computed"),
        pytest.param(BYTES, id="bytes"),
    ],
)
def test_near_misses_are_left_alone(text: str) -> None:
    model = with_shapes(text)
    assert with_joined_ends(model) is model


@pytest.mark.needs_tflm
def test_the_numbers_stay_up_to_a_step_of_16_bits(tmp_path: Path) -> None:
    model = with_shapes(HEAD)
    feed = {"x": np.random.default_rng(2).normal(0, 2, (1, 4, 6, 6)).astype(np.float32)}
    runner = opened(compiled(model), model, tmp_path)
    found, wanted = runner.run(feed)["y"], Reference(model).run(feed)["y"]
    runner.close()
    largest = 0.05 * 131
    assert np.abs(found - wanted)[..., :4].max() <= largest / 32767
    assert np.abs(found - wanted)[..., 4:].max() <= 1.01 / 256  # LOGISTIC's own step
    assert len(np.unique(found[..., 4:])) > 20


@pytest.mark.needs_vela
def test_one_node_alone_is_left_to_the_processor() -> None:
    found = vela.estimate(compiled(with_shapes(HEAD)).files, find_profile("ethos-u55"))
    assert found is not None
    assert [node.op for node in found.nodes if node.device == "CPU"] == ["Dequantize"]


STEM = """
<ir_version: 10, opset_import: ["": 23]>
stem (float[1,3,16,16] x) => (float[1,4,8,8] y)
    <float s = {0.05}, int8 z = {3}, float[4] c = {0.1,0.1,0.1,0.1}, int8[4] k = {0,0,0,0},
     int8[4,3,6,6] w>
{
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    v = DequantizeLinear<axis=0>(w, c, k)
    a = Conv<kernel_shape=[6,6], strides=[2,2], pads=[2,2,2,2]>(d, v)
    o = QuantizeLinear(a, s, z)
    y = DequantizeLinear(o, s, z)
}
"""


def test_a_stem_that_steps_over_pixels_moves_none() -> None:
    """XNNPACK gets blocks of pixels as channels, by a TRANSPOSE; vela takes none of this size."""
    model = with_shapes(STEM.replace("int8[4,3,6,6] w", f"int8[4,3,6,6] w = {{{','.join(['1'] * 432)}}}"))
    assert "TRANSPOSE" in compiled(model, "tflite").facts["ops"]
    assert compiled(model).facts["transposed_bytes"] == 0
