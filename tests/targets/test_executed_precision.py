"""Runners say what is executed: int8 for a model with Q/DQ pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from tests.targets.engine_trial import load

TARGETS = [
    pytest.param("ort", 16, marks=pytest.mark.needs_ort),
    pytest.param("openvino", 64, marks=pytest.mark.needs_openvino),
    pytest.param("tflite", 16, marks=pytest.mark.needs_tflite),
]
"""Target and the largest step of 255 that its answer may be off. Engines round between layers as they do;
OpenVINO on chips without VNNI also saturates sums of two products (60 seen on 40 photographs, ONNX Runtime 0,
LiteRT 16)."""


@pytest.mark.needs_shared
@pytest.mark.parametrize(("target", "steps"), TARGETS)
def test_a_quantized_model_runs_in_int8(target: str, steps: int, shared: Path, tmp_path: Path) -> None:
    path = shared / "models" / "resnet8_cifar10_int8_qdq.onnx"
    model = open_model(path, {"input_1_int8": (1, 32, 32, 3)})
    runner = load(model, target, tmp_path)
    assert runner.precision == "int8"
    random = np.random.default_rng(0)
    # A smooth picture: of noise this network says the same class whatever is computed.
    coarse = random.integers(-128, 128, (1, 4, 4, 3))
    picture = coarse.repeat(8, axis=1).repeat(8, axis=2).astype(np.int8)
    expected = Reference(model).run({"input_1_int8": picture})["Identity_int8"]
    got = runner.run({"input_1_int8": picture})["Identity_int8"]
    assert np.argmax(got) == np.argmax(expected)
    assert np.abs(got.astype(int) - expected).max() <= steps
