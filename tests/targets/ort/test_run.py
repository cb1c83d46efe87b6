"""The runner of ONNX Runtime keeps the contract of edgekit.target."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_ort import run

from edgekit.errors import EngineError, MissingDependency
from tests.models import SMALL_CNN, TWO_INPUTS, parse
from tests.targets.engine_trial import EDGES, feeds, load, same_as_reference, with_shapes

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize("text", [EDGES, SMALL_CNN], ids=["edges", "cnn"])
def test_answers_as_the_reference_does(text: str, tmp_path: Path) -> None:
    model = with_shapes(text)
    same_as_reference(model, load(model, "ort", tmp_path), feeds(model))


def test_outputs_are_the_callers(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "ort", tmp_path)
    ones = np.ones((1, 8), np.float32)
    first = runner.run({"left": ones, "right": ones})["sum"]
    runner.run({"left": ones * 5, "right": ones})
    assert first.tolist() == [[2.0] * 8]


def test_facts_and_what_runs(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "ort", tmp_path)
    assert runner.facts() == {"providers": ["CPUExecutionProvider"]}
    assert (runner.device, runner.precision) == ("CPU", "fp32")
    assert run.engine_version().startswith("ONNX Runtime 1.")
    runner.close()


def test_threads_and_spinning(tmp_path: Path) -> None:
    load(parse(TWO_INPUTS), "ort", tmp_path)
    session = run.open_session(tmp_path / "model.onnx", threads=3)
    settings = session.get_session_options()
    assert settings.intra_op_num_threads == 3
    assert settings.inter_op_num_threads == 1
    assert settings.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_damaged_file_is_an_engine_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(EngineError, match=r"^ONNX Runtime 1\.\S+ did not load \S+model\.onnx: .*Protobuf"):
        run.open_runner({"model.onnx": path}, [], [], {}, 1)


def test_a_failing_run_is_an_engine_error(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "ort", tmp_path)
    with pytest.raises(EngineError, match=r"^ONNX Runtime 1\.\S+ failed to run: .*right"):
        runner.run({"left": np.ones((1, 8), np.float32)})


def test_absence_gives_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "onnxruntime":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependency) as caught:
        run.engine_version()
    assert str(caught.value) == (
        "onnxruntime is not installed, and running an ONNX model needs it: pip install 'edgekit-sdk[ort]'"
    )
