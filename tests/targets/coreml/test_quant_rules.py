"""What is asked of a quantized model is what the lowering and the Neural Engine's rules have a form for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_coreml.compile import compile_model
from edgekit_coreml.quant_rules import rules

import edgekit
from edgekit.runtime import Session
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.models import write

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

TWO_LAYERS = """
<ir_version: 10, opset_import: ["": 20]>
layers (float[1,3,8,8] x) => (float[1,4] y)
{
    one = Constant<value = float[4,3,1,1] {0.5,-0.25,0.125, 1,0.5,-1, -0.75,0.5,0.25, 0.1,0.2,0.3}>()
    two = Constant<value = float[4,4,1,1] {1,0,0.5,0, 0,1,0,0.5, 0.5,0,1,0, 0,0.5,0,1}>()
    a = Conv(x, one)
    b = Relu(a)
    c = Conv(b, two)
    d = GlobalAveragePool(c)
    y = Flatten(d)
}
"""


def test_symmetric_and_per_tensor() -> None:
    asked = rules(find_profile("iphone-15-pro"))
    assert (asked.activations, asked.symmetric, asked.bias) == ("int8", True, "float")
    assert asked.channel_noise is not None
    assert asked.channel_noise.act == "float"
    assert all(row.source for row in asked.ops)


def test_what_is_quantized_by_them_runs_on_int8(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    samples = [{"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(12)]
    bundle = edgekit.build(
        write(tmp_path, TWO_LAYERS), targets=["coreml"], precision="int8", samples=samples, max_drop="15dB"
    )
    (variant,) = [v for v in bundle.variants if v.precision.startswith("int8")]
    assert variant.status == "verified by reference execution; not run on Apple hardware"
    made = variant.evidence["compile"]
    assert made["ops"]["constexpr_affine_dequantize"] == 2
    assert made["ops"]["quantize"] >= 2
    assert "not" not in made["neural_engine"]
    with Session(bundle, variant=variant.name) as session:
        assert session.active.precision == "int8"


def test_pairs_compile_for_every_profile(tmp_path: Path) -> None:
    from edgekit.compiler.model.onnx_file import open_model
    from edgekit.compiler.passes import run_passes
    from tests.fixtures.models import QUANTIZED

    model = open_model(write(tmp_path, QUANTIZED))
    run_passes(model)
    for name in ("coreml", "iphone-12", "iphone-15-pro", "mac-m2"):
        made = compile_model(model, find_profile(name), "int8")
        assert made.options["precision"] == "int8"
