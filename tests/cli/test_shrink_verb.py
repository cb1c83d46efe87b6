from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.pipeline import shrunk_model
from tests.fixtures.command_line import Call, answer
from tests.fixtures.spare_networks import samples, spare_network

pytestmark = pytest.mark.needs_ort


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, sample in enumerate(samples()):
        np.save(tmp_path / f"{number}.npy", sample["x"])
    return tmp_path


def test_verb(folder: Path, call: Call) -> None:
    output = folder / "smaller.onnx"
    done = call(
        "model", "shrink", spare_network(folder), "--flops", "-30%", "--samples", folder / "*.npy",
        "-t", "ort", "-o", output, "--force", "--json",
    )  # fmt: skip
    found = answer(done)
    assert done.exit_code == 0
    assert found["onnx"] == str(output)
    assert found["multiplications"][1] < found["multiplications"][0]
    assert output.is_file()


def test_nothing_is_written_that_no_engine_runs_faster(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shrunk_model, "FASTER", 0.0)
    output = folder / "smaller.onnx"
    done = call(
        "model",
        "shrink",
        spare_network(folder),
        "--flops",
        "-30%",
        "--samples",
        folder / "*.npy",
        "-t",
        "ort",
        "-o",
        output,
    )
    assert done.exit_code == 1
    assert "not faster: 0x or less is required on one engine" in done.stdout
    assert "nothing was written" in done.stdout
    assert not output.exists()


def test_output_must_be_onnx(folder: Path, call: Call) -> None:
    done = call(
        "model", "shrink", "net.onnx", "--flops", "-20%", "--samples", folder, "-o", folder / "smaller.pt"
    )
    assert done.exit_code == 2
    assert "must be an ONNX file; end its name in .onnx" in done.stderr
