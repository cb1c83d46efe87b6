"""The programs of samples/native, compiled as C and run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session
from tests.fixtures.whisper_folders import speech
from tests.native.library import link_program, ort_library
from tests.native.models import colours_bundle, yolox_bundle
from tests.web.microphones import write_wav

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_ort]
ROOT = Path(__file__).resolve().parents[2]
PROGRAMS, CARDS = ROOT / "samples" / "native", ROOT / "samples" / "cards"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_program(PROGRAMS / "detect.c", tmp_path_factory.mktemp("detect") / "program")


def lines_of(program: Path, bundle: Path, file: Path) -> list[list[str]]:
    """Run a program on a file; return the words of its lines."""
    ort = ort_library()
    if not ort:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    done = subprocess.run(
        [program, bundle, ort, file], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def run(
    program: Path, bundle: Path, frame: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
) -> list[list[str]]:
    picture = bundle.with_suffix(".ppm")
    picture.write_bytes(b"P6\n%d %d\n255\n" % (frame.shape[1], frame.shape[0]) + frame.tobytes())
    return lines_of(program, bundle, picture)


def test_a_classifier(tmp_path: Path, program: Path) -> None:
    path = colours_bundle().save(tmp_path / "colours.edgekit")
    frame = np.zeros((20, 30, 3), np.uint8)
    frame[:, :, 1] = 200
    assert [row[0] for row in run(program, path, frame)] == ["green", "red", "blue"]


@pytest.mark.needs_shared
def test_a_detector(tmp_path: Path, program: Path, shared: Path) -> None:
    from PIL import Image

    path = yolox_bundle(shared).save(tmp_path / "yolox.edgekit")
    photo = sorted((shared / "data" / "coco128").rglob("*.jpg"))[0]
    frame = np.ascontiguousarray(Image.open(photo).convert("RGB"))
    with Session(path, threads=1) as session:
        expected = session.predict(frame)
    rows = run(program, path, frame)
    assert [row[0] for row in rows] == [one.label for one in expected]
    assert len(rows) > 0


@pytest.mark.needs_shared
def test_silero_vad_on_a_wav_file(tmp_path: Path, shared: Path) -> None:
    """Its state and the last samples of a window go on to the next one; the file has another rate."""
    rate = 22_050
    model = shared / "models" / "silero_vad.onnx"
    bundle = edgekit.build(model, targets=["ort"], precision="fp32", card=CARDS / "silero_vad.toml")
    path = bundle.save(tmp_path / "silero.edgekit")
    sound = np.concatenate([np.zeros(8000), speech(2.0)]).astype(np.float32)
    rows = lines_of(
        link_program(PROGRAMS / "listen.c", tmp_path / "program"),
        path,
        write_wav(tmp_path / "speech.wav", sound, rate),
    )
    heard = (sound * 32767).astype(np.int16).astype(np.float32) / 32768
    with Session(path, threads=1) as session:
        windows = list(session.listen(heard, rate=rate))
    assert len(rows) == len(windows) > 30
    for (start, end, *label, score), window in zip(rows, windows, strict=True):
        assert [float(start), float(end)] == pytest.approx([window.start_s, window.end_s], abs=6e-4)
        assert " ".join(label) == ("speech" if window.prediction.is_speech else "no speech")
        assert float(score) == pytest.approx(window.prediction.probability, abs=1e-5)
    scores = [float(row[-1]) for row in rows]
    assert max(scores) - min(scores) > 0.01


def test_a_bundle_that_is_refused(tmp_path: Path, program: Path) -> None:
    (tmp_path / "x.edgekit").write_bytes(b"PK\x03\x04")
    (tmp_path / "x.ppm").write_bytes(b"P6\n1 1\n255\nabc")
    command: list[str | Path] = [program, tmp_path / "x.edgekit", "libnothing.so", tmp_path / "x.ppm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "header: it starts with b'PK\\x03\\x04'; a bundle starts with b'EDGEKIT\\x00'" in done.stderr
