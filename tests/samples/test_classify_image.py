"""The tutorial's sample, run as its readers run it; the tutorial shows its files as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, python_blocks
from tests.fixtures.models import write

SAMPLE = ROOT / "samples" / "classify_image"
UPRIGHT = """
<ir_version: 8, opset_import: ["": 17]>
turn (float[1,3,224,224] x) => (float[1,4] fetch_name_0)
<float[3,4] weights = {0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 9}> {
  pooled = GlobalAveragePool(x)
  flat = Flatten(pooled)
  scores = MatMul(flat, weights)
  fetch_name_0 = Softmax<axis = 1>(scores)
}
"""
"""With the names of the tutorial's model: a bright page is the fourth class."""
pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tflite]
pytest.importorskip("cv2")


def run(script: str, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SAMPLE / script), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_from_the_model_to_a_class(tmp_path: Path) -> None:
    write(tmp_path, UPRIGHT, "model.onnx")
    page = SAMPLE / "page.png"
    done = run("host.py", tmp_path, "model.onnx", SAMPLE / "card.toml", page)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"yes, on (?:ONNX Runtime|OpenVINO|LiteRT) ", done.stdout)) == 3
    done = run("device.py", tmp_path, "classifier.edgekit", page)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"270  [01]\.\d{3}", lines[0])
    assert len(lines) == 5
    assert re.fullmatch(r"\w+-fp32 on (ONNX Runtime|OpenVINO|LiteRT) \S+", lines[4])


@pytest.mark.needs_shared
def test_another_classifier(shared: Path, tmp_path: Path) -> None:
    card = SAMPLE.parent / "cards" / "resnet8_cifar10_fp32.toml"
    photo = shared / "data" / "imagenet500" / "n02690373_airliner.jpg"
    photo = next(iter([photo] if photo.is_file() else sorted(photo.parent.rglob(photo.name))))
    done = run("host.py", tmp_path, shared / "models" / "resnet8_cifar10_fp32.onnx", card, photo)
    assert done.returncode == 0, done.stderr
    done = run("device.py", tmp_path, "classifier.edgekit", photo)
    assert done.stdout.startswith("airplane "), done.stderr


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    done = run("host.py", tmp_path, "absent.onnx", SAMPLE / "card.toml", SAMPLE / "page.png")
    assert done.returncode == 1
    assert done.stderr.startswith("error: absent.onnx")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = run("device.py", tmp_path, "absent.edgekit", "absent.jpg")
    assert done.stderr.splitlines()[-1] == "error: absent.jpg can't be read as an image"


def test_the_tutorial_shows_the_files() -> None:
    blocks = [block.source for block in python_blocks((ROOT / "docs" / "tutorial.md").read_text("utf-8"))]
    for name in ("host.py", "device.py"):
        source = (SAMPLE / name).read_text("utf-8").partition('"""\n\n')[2]
        assert source in blocks, name
