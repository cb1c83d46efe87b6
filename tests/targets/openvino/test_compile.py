"""What is compiled for OpenVINO."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from edgekit_openvino import compile as openvino

from edgekit.errors import UnsupportedError
from tests.fixtures.models import SMALL_CNN, parse
from tests.targets.engine_trial import EDGES, feeds, load, product, profile, with_shapes

pytestmark = pytest.mark.needs_openvino

NO_CONVERSION = """
<ir_version: 10, opset_import: ["": 23, "my.own": 1]>
mixed (float[1,4] x, uint8[10] jpeg) => (float[1,4] z, uint8[1,1,3] picture)
{
    [fine] y = Relu(x)
    [strange] z = my.own.Thing(y)
    [decoder] picture = ImageDecoder(jpeg)
}
"""


def test_no_name_is_used_twice() -> None:
    """OpenVINO 2024.0 refuses such a file. A node of the source has the name that an inserted one gets;
    two nodes of the source have the same."""

    def layers(text: str) -> list[str]:
        content = openvino.compile_model(with_shapes(text), profile("openvino"), "fp32").files["model.xml"]
        return re.findall(r'<layer id="[0-9]+" name="([^"]*)"', bytes(content).decode())

    def named(conv: str, relu: str) -> str:
        text = SMALL_CNN.replace("convolved = Conv", f"[{conv}] convolved = Conv")
        return text.replace("features = Relu", f"[{relu}] features = Relu")

    inserted = {name for name in layers(named("conv", "relu")) if re.fullmatch("[A-Z][A-Za-z]+_[0-9]+", name)}
    assert inserted
    for conv, relu in [("same", "same"), *((name, "relu") for name in sorted(inserted))]:
        names = layers(named(conv, relu))
        assert conv in names
        assert len(names) == len(set(names))


def test_fp16_halves_the_weights_and_keeps_fp32_arithmetic(tmp_path: Path) -> None:
    model = product()
    full = openvino.compile_model(model, profile("openvino"), "fp32")
    half = openvino.compile_model(model, profile("openvino"), "fp16")
    assert len(half.files["model.bin"]) < 0.6 * len(full.files["model.bin"])
    given = feeds(model)
    weights = model.graph.initializers["w"].const_value
    assert weights is not None
    exact = given["x"].astype(np.float64) @ weights.numpy().astype(np.float16).astype(np.float64)
    runner = load(model, "openvino", tmp_path, "fp16")
    assert runner.precision == "fp32"
    np.testing.assert_allclose(runner.run(given)["y"], exact, rtol=1e-5, atol=1e-5)


def test_unused_inputs_are_named() -> None:
    artifact = openvino.compile_model(with_shapes(EDGES), profile("openvino"), "fp32")
    assert artifact.facts["unused_inputs"] == ["unused"]


def test_nodes_without_a_conversion_are_all_named() -> None:
    with pytest.raises(UnsupportedError) as caught:
        openvino.compile_model(parse(NO_CONVERSION), profile("openvino"), "fp32")
    assert str(caught.value) == (
        "openvino can't run the model\n"
        "  EK1001  strange  my.own.Thing  OpenVINO does not support it\n"
        "  EK1001  decoder  ImageDecoder  OpenVINO does not support it"
    )
    assert openvino.check_model(parse(NO_CONVERSION), profile("openvino")) == caught.value.findings


def test_a_supported_model_has_no_findings() -> None:
    assert openvino.check_model(with_shapes(SMALL_CNN), profile("openvino")) == []
