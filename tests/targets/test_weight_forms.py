"""Variants as they run: stored weights, the precision executed, inputs that are not fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.errors import EngineError
from edgekit.system.cpu import instruction_sets
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler, engine
from edgekit.tensor_spec import TensorSpec
from tests.fixtures import models
from tests.fixtures.models import TWO_INPUTS, parse
from tests.targets.engine_trial import load, profile, put_down

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


LEFT, SUM = TensorSpec("left", "float32", (1, 8)), TensorSpec("sum", "float32", (1, 8))
SAYS = {
    "ort": r"failed to run: Required inputs \(\['right'\]\) are missing",
    "openvino": r"^model\.xml reads right, which is not an input of the model; its inputs are left$",
    "tflite": r"model\.tflite reads right, which is not an input of the model; its inputs are left$",
    "coreml": r"^input right is missing; there are left$",
}


@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=getattr(pytest.mark, f"needs_{name}")) for name in SAYS]
)
def test_an_input_that_nobody_feeds_is_an_engine_error(target: str, tmp_path: Path) -> None:
    model = parse(TWO_INPUTS)
    run_passes(model)
    artifact = compiler(target).compile_model(model, profile(target), "fp32")
    options = dict(artifact.options)
    if "inputs" in options:
        options["inputs"] = [entry for entry in options["inputs"] if entry["name"] == "left"]
    files = put_down(artifact, tmp_path)

    def answer() -> None:
        runner = engine(target).open_runner(files, [LEFT], [SUM], options, 1)
        runner.run({"left": np.ones((1, 8), np.float32)})

    with pytest.raises(EngineError, match=SAYS[target]):
        answer()
