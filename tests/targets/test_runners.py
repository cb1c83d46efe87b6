"""What the runner of every target owes: edgekit.target.contract."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import EngineError, MissingDependency, install_line
from edgekit.target.registry import engine
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse
from tests.targets.engine_trial import EDGES, feeds, load, same_as_reference, with_shapes


def on(*targets: str) -> pytest.MarkDecorator:
    """Return a mark that runs a test on each target whose engine is here."""
    needs = {target: [getattr(pytest.mark, f"needs_{target}")] for target in targets}
    return pytest.mark.parametrize("target", [pytest.param(name, marks=needs[name]) for name in targets])


@on("ort", "openvino", "tflite", "coreml")
@pytest.mark.needs_ort
@pytest.mark.parametrize("text", [EDGES, SMALL_CNN], ids=["edges", "cnn"])
def test_answers_as_the_reference_does(text: str, target: str, tmp_path: Path) -> None:
    model = with_shapes(text)
    runner = load(model, target, tmp_path)
    for seed in range(3):
        same_as_reference(model, runner, feeds(model, seed))
    runner.close()


@on("ort", "openvino", "tflite", "coreml", "tflm", "coreai")
@pytest.mark.parametrize("size", [8, 50000], ids=["copied", "handed over"])
def test_outputs_and_inputs_are_the_callers(size: int, target: str, tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS.replace("8]", f"{size}]")), target, tmp_path)
    ones = np.ones((1, size), np.float32)
    left = ones.copy()
    left.flags.writeable = False  # as an array mapped from a file is
    first = runner.run({"left": left, "right": ones})["sum"]
    kept = first.copy()
    runner.run({"left": ones * 5, "right": ones})
    runner.close()
    np.testing.assert_array_equal(first, kept)
    assert set(first.flat) == {2.0}
    np.testing.assert_array_equal(left, ones)


@pytest.mark.parametrize(
    ("target", "name", "files", "options"),
    [
        pytest.param("ort", r"ONNX Runtime 1\.\S+", ["model.onnx"], {}, marks=pytest.mark.needs_ort),
        pytest.param(
            "openvino", r"OpenVINO 20\S+", ["model.xml", "model.bin"], {}, marks=pytest.mark.needs_openvino
        ),
        pytest.param(
            "tflite", r"(LiteRT|tflite-runtime) \S+", ["model.tflite"],
            {"signature": "s", "inputs": [], "outputs": []}, marks=pytest.mark.needs_tflite,
        ),
    ],
)  # fmt: skip
def test_a_damaged_file_is_an_engine_error(
    target: str, name: str, files: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).write_bytes(b"not a model")
    with pytest.raises(EngineError, match=rf"^{name} did not load \S+{files[0]}: \S"):
        engine(target).open_runner({file: tmp_path / file for file in files}, [], [], options, 1)


@pytest.mark.parametrize(
    ("target", "modules", "package", "why"),
    [
        ("ort", ("onnxruntime",), "onnxruntime", "running an ONNX model"),
        ("openvino", ("openvino",), "openvino", "running an OpenVINO IR"),
        ("tflite", ("ai_edge_litert", "tflite_runtime"), "ai-edge-litert", "running a .tflite file"),
        ("coreml", ("onnxruntime",), "onnxruntime", "running an .mlpackage off macOS"),
        ("tflm", ("tflite_micro",), "tflite-micro", "running a .tflite file as a microcontroller does"),
        ("ncnn", ("ncnn",), "ncnn", "running an ncnn"),
        ("coreai", ("coreai",), "coreai-core", "running an .aimodel"),
        ("qnn", ("onnxruntime_qnn",), "onnxruntime-qnn", "running on a Hexagon NPU"),
    ],
)
def test_absence_gives_the_pip_line(
    target: str, modules: tuple[str, ...], package: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(MissingDependency) as caught:
        engine(target).engine_version()
    assert str(caught.value).startswith(f"{package} is not installed, and {why}")
    assert str(caught.value).endswith(f" needs it: {install_line('ort' if target == 'coreml' else target)}")
