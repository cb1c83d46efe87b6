"""The original runs in a child process: what it answers, and what a crash or a refusal becomes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.importer import original
from edgekit_tflite.importer.original import run_original

import edgekit
from edgekit.errors import EngineError
from tests.fixtures.tflite_files import TfliteFile
from tests.targets.tflite.importer.reader_cases import SCORES, detections

pytestmark = [pytest.mark.needs_tflite, pytest.mark.needs_ort]
S = (2, 3)


def write(folder: Path, code: str = "RELU", **custom: bytes) -> Path:
    file = TfliteFile()
    made = file.op(code, [file.input(S, name="x")], (S, "float32"), **custom)
    path = folder / "model.tflite"
    path.write_bytes(file.content(*made))
    return path


def test_it_answers_by_onnx_names(tmp_path: Path) -> None:
    samples = [{"x": np.full(S, number, np.float32)} for number in (-1, 2)]
    found = run_original(write(tmp_path), samples)
    assert found.engine.startswith("LiteRT ")
    np.testing.assert_array_equal([each["y1"][0, 0] for each in found.outputs], [0, 2])


def test_what_litert_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as error:
        run_original(write(tmp_path, "Mystery", custom=b""), [{"x": np.zeros(S, np.float32)}])
    assert "did not load it: Encountered unresolved custom op: Mystery" in str(error.value)


def test_a_crash_is_no_crash_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def killed(command: list[str], **options: object) -> object:
        code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        return run([command[0], "-c", code], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", killed)
    path = write(tmp_path)
    with pytest.raises(EngineError, match=r"LiteRT .* crashed on it \(exit code -11\)"):
        run_original(path, [{"x": np.zeros(S, np.float32)}])
    compared = edgekit.import_model(path).compared
    assert "crashed on it (exit code -11)" in str(compared)


def test_it_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(original, "SECONDS", 0.01)
    with pytest.raises(EngineError, match=r"LiteRT .* did not end within 0\.01 s"):
        run_original(write(tmp_path), [{"x": np.zeros(S, np.float32)}])


def test_detections_that_the_kernel_leaves_unset_are_zeros(tmp_path: Path) -> None:
    """Without it the comparison would be with what the memory held."""
    file = TfliteFile()
    path = tmp_path / "model.tflite"
    path.write_bytes(file.content(*detections(False, 0.97)(file)))
    boxes = np.random.default_rng(1).standard_normal((1, 40, 4)).astype(np.float32)
    (found,) = run_original(path, [{"x0": boxes, "x1": SCORES}]).outputs
    kinds, scores, count = list(found.values())[1:]
    assert 0 < count[0] < 10
    assert not scores[0, int(count[0]) :].any()
    assert not kinds[0, int(count[0]) :].any()
    assert edgekit.import_model(path).compared.outputs
