"""The six steps of a camera app's latency, on a tiny detector: they run, and detect the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import edgekit
from tests.docs.documents import ROOT
from tests.fixtures.detector import detector, detector_card

cv2 = pytest.importorskip("cv2")
pytestmark = pytest.mark.needs_ort
SCRIPT = ROOT / "samples" / "latency" / "steps.py"
STEPS = ["script", "one thread", "kept memory", "edgekit, fp32", "edgekit", "stream"]


def steps(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sets glibc's thresholds")
def test_every_step_detects_the_same(tmp_path: Path) -> None:
    model = detector(tmp_path / "model.onnx")
    made = edgekit.build(model, targets=["ort"], card=detector_card(64), shapes={"image": (1, 3, 64, 64)})
    made.save(tmp_path / "small.edgekit")
    (tmp_path / "photos").mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (24, 40, 3), np.uint8)
        cv2.imwrite(str(tmp_path / "photos" / f"{seed}.png"), pixels)
    options = ("--sizes", "640x640", "--frames", "3", "--rounds", "1", "--json", "figures.json")
    done = steps(tmp_path, "model.onnx", "small.edgekit", "photos", *options)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "figures.json").read_text())["640x640"]
    assert list(figures) == STEPS
    lines = done.stdout.splitlines()
    assert lines[0] == "  640 x 640"
    assert [line[2:15].strip() for line in lines[2:8]] == STEPS
    for step, row in figures.items():
        assert row["sure"] > 0, step
        assert row["same"] == row["sure"], step
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert figures["stream"]["variant"] == figures["edgekit"]["variant"] == "ort-fp32"


def test_a_folder_without_photographs(tmp_path: Path) -> None:
    done = steps(tmp_path, "model.onnx", "small.edgekit", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path} has no frame that OpenCV reads\n")
