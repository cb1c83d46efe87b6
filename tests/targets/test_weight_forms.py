"""The forms of weights of each target, run: they answer like the Q/DQ graph that says so, in fewer bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.system.cpu import instruction_sets
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler, engine
from tests.fixtures import models
from tests.targets.engine_trial import profile, put_down

CASES = [
    pytest.param("ort", 0, "int8-weights", 4, marks=pytest.mark.needs_ort),
    pytest.param("ort", 1, "int8-dynamic", 2, marks=pytest.mark.needs_ort),
    pytest.param("openvino", 0, "int8-weights", 4, marks=[pytest.mark.needs_ort, pytest.mark.needs_openvino]),
    pytest.param("openvino", 1, "int8-dynamic", 2, marks=[pytest.mark.needs_ort, pytest.mark.needs_openvino]),
    pytest.param("tflite", 0, "int8-weights", 4, marks=[pytest.mark.needs_ort, pytest.mark.needs_tflite]),
    pytest.param("tflite", 1, "int8-dynamic", 2, marks=[pytest.mark.needs_ort, pytest.mark.needs_tflite]),
    pytest.param("tflite", 2, "int8-dynamic", 3, marks=[pytest.mark.needs_ort, pytest.mark.needs_tflite]),
]


@pytest.mark.parametrize(("target", "place", "name", "count"), CASES)
def test_a_form(target: str, place: int, name: str, count: int, tmp_path: Path) -> None:
    model = open_model(models.dense_network(tmp_path), {})
    inputs, outputs = signature(model)
    run_passes(model)
    found = resolve(profile(target)).rules
    assert found is not None
    form = found.weight_forms[place]
    stored, names = with_stored_weights(model, found, form, [])
    assert (form.name, len(names)) == (name, count)
    artifact = compiler(target).compile_model(stored, profile(target), name)
    fp32 = compiler(target).compile_model(model, profile(target), "fp32")
    saved = 3 * sum([128 * 128, 128 * 128, 128 * 72, 128 * 64][:count])
    sizes = [sum(map(len, each.files.values())) for each in (fp32, artifact)]
    assert sizes[0] - sizes[1] > 0.8 * saved
    files = put_down(artifact, tmp_path / "files")
    runner = engine(target).open_runner(files, inputs, outputs, artifact.options, 1)
    dynamic = name == "int8-dynamic"
    vnni = not {"avx512_vnni", "avx_vnni"}.isdisjoint(instruction_sets())
    rounds = dynamic and (target != "openvino" or vnni)  # OpenVINO rounds the inputs with VNNI only
    assert runner.precision == ("int8" if rounds else "fp32")
    if target == "tflite":
        assert runner.facts()["outside_delegate"] == {}
        assert ("DEQUANTIZE" in artifact.facts["ops"]) is not dynamic
    for seed in range(3):
        feeds = {"x": np.random.default_rng(seed).normal(0, 1, (1, 8, 8, 8)).astype(np.float32)}
        expected = Reference(stored).run(feeds)["y"]
        off = np.linalg.norm(runner.run(feeds)["y"] - expected) / np.linalg.norm(expected)
        assert off < (0.03 if rounds else 1e-5)
        assert not rounds or off > 1e-4  # it does round the inputs
    runner.close()
