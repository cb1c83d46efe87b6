"""Products of stored integers whose inputs OpenVINO rounds to int8, where the processor has VNNI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.system import cpu
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler, engine
from tests.fixtures import models
from tests.targets.engine_trial import profile, put_down

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino]


def test_inputs_are_rounded_with_vnni_only(tmp_path: Path) -> None:
    model = open_model(models.dense_network(tmp_path), {})
    inputs, outputs = signature(model)
    run_passes(model)
    target = resolve(profile("openvino"))
    assert target.rules is not None
    stored, _ = with_stored_weights(model, target.rules, target.rules.weight_forms[0], [])
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (1, 8, 8, 8)).astype(np.float32)}
    answers = {}
    for precision in ("int8-weights", "int8-dynamic"):
        artifact = compiler("openvino").compile_model(stored, profile("openvino"), precision)
        files = put_down(artifact, tmp_path / precision)
        runner = engine("openvino").open_runner(files, inputs, outputs, artifact.options, 1)
        answers[precision] = runner.precision, runner.run(feeds)["y"]
        runner.close()
    (floats, expected), (rounded, got) = answers.values()
    off = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    vnni = not {"avx512_vnni", "avx_vnni"}.isdisjoint(cpu.instruction_sets())
    assert (floats, rounded) == ("fp32", "int8" if vnni else "fp32")
    assert 1e-4 < off < 0.03 if vnni else off < 1e-5
