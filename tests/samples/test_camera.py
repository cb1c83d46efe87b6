"""The camera sample as a user runs it: package on the host, then the app on every engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

CAMERA = Path(__file__).resolve().parents[2] / "samples" / "camera"
CARDS = CAMERA.parent / "cards"
FACE = (178, 55, 271, 180)
"""x1, y1, x2, y2 of the face in photo.jpg, looked at."""

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tflite]


def script(name: str, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, str(CAMERA / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bundle(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("camera")
    model, card = shared / "models" / "centerface.onnx", CARDS / "centerface.toml"
    report = script("package.py", "--model", model, "--card", card, "-o", "m.edgekit", cwd=folder)
    assert [line.split()[:2] for line in report.splitlines()[1:4]] == [
        [t, "fp32"] for t in ("ort", "openvino", "tflite")
    ]
    return folder / "m.edgekit"


@pytest.mark.needs_shared
@pytest.mark.parametrize("engine", ["ort", "openvino", "tflite"])
def test_the_face_is_found_and_drawn(bundle: Path, engine: str, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    said = script(
        "app.py", bundle, CAMERA / "photo.jpg", "-o", out, "--engine", engine, "--strict", cwd=tmp_path
    )
    assert "frames     1, 1 found" in said
    assert f"{engine}-fp32" in said
    before, after = cv2.imread(str(CAMERA / "photo.jpg")), cv2.imread(str(out))
    assert before is not None
    assert after is not None
    rows, columns = np.nonzero(np.abs(after.astype(int) - before).max(axis=2) > 40)
    x1, y1, x2, y2 = FACE
    assert abs(columns.min() - x1) <= 6
    assert abs(rows.max() - y2) <= 6
    # Above the box stands its label; nothing is drawn elsewhere.
    assert y1 - 40 <= rows.min() <= y1
    assert columns.max() <= max(x2 + 6, x1 + 130)


@pytest.mark.needs_shared
def test_a_video_goes_through(shared: Path, bundle: Path, tmp_path: Path) -> None:
    video, out = shared / "data" / "video" / "bikes.mp4", tmp_path / "out.mp4"
    said = script("app.py", bundle, video, "-o", out, "--frames", 3, cwd=tmp_path)
    assert "frames     3" in said
    stages = [line.split()[0] for line in said.splitlines() if line.endswith("ms")]
    assert stages == ["decode", "prepare", "infer", "answer", "draw"]
    assert cv2.VideoCapture(str(out)).get(cv2.CAP_PROP_FRAME_COUNT) == 3


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.jpg"], "error: absent.jpg can't be read as a picture"),
        (["absent.mp4"], "error: absent.mp4 can't be opened as a video, a webcam or a stream"),
        (["absent.jpg", "--engine", "coreml"], "error: "),
    ],
)
def test_a_mistake_is_one_message(bundle: Path, arguments: list[str], message: str, tmp_path: Path) -> None:
    command = [sys.executable, str(CAMERA / "app.py"), str(bundle), *arguments, "-o", "x.png"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(message)
    assert "Traceback" not in done.stderr


def test_the_app_imports_the_runtime_and_opencv_only() -> None:
    tree = ast.parse((CAMERA / "app.py").read_text("utf-8"))
    names = {
        name
        for node in ast.walk(tree)
        for name in (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    foreign = {name for name in names if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"cv2", "numpy", "edgekit.runtime"}
