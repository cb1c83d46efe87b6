"""Exports of small trained networks, on every engine, against their frameworks' own answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session

EXPORTS = Path(__file__).parent / "exports"
ENGINES = [
    pytest.param("ort", marks=pytest.mark.needs_ort),
    pytest.param("tflite", marks=[pytest.mark.needs_ort, pytest.mark.needs_tflite]),
    pytest.param("openvino", marks=[pytest.mark.needs_ort, pytest.mark.needs_openvino]),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("export", sorted(EXPORTS.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_frameworks_answers(export: Path, engine: str, tmp_path: Path) -> None:
    bundle = edgekit.build(export, targets=[engine])
    bundle.save(tmp_path / "b.edgekit")
    with (
        np.load(export.with_suffix(".npz")) as saved,
        Session(tmp_path / "b.edgekit", engine=engine) as session,
    ):
        (name,) = bundle.golden[0][0]
        for number, sample in enumerate(saved[name]):
            for output, got in session.run({name: sample[None]}).items():
                want = saved[output][number]
                if got.dtype.kind == "i":
                    assert got.ravel() == want
                else:
                    scale = max(float(np.abs(saved[output]).max()), 1e-6)
                    np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=0, atol=2e-5 * scale)
