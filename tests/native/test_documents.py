"""The program of docs/native.md, compiled as C and run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime import Session
from tests.native.library import link_program, ort_library
from tests.native.models import colours_bundle, yolox_bundle

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_ort]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "native.md"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (source,) = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(source.splitlines()) < 50
    (folder / "detect.c").write_text(source)
    return link_program(folder / "detect.c", folder / "detect")


def run(
    program: Path, bundle: Path, frame: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
) -> list[list[str]]:
    ort = ort_library()
    if not ort:
        pytest.skip("this wheel of onnxruntime has no libonnxruntime.so")
    picture = bundle.with_suffix(".ppm")
    picture.write_bytes(b"P6\n%d %d\n255\n" % (frame.shape[1], frame.shape[0]) + frame.tobytes())
    done = subprocess.run(
        [program, bundle, ort, picture], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


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


def test_a_bundle_that_is_refused(tmp_path: Path, program: Path) -> None:
    (tmp_path / "x.edgekit").write_bytes(b"PK\x03\x04")
    (tmp_path / "x.ppm").write_bytes(b"P6\n1 1\n255\nabc")
    command: list[str | Path] = [program, tmp_path / "x.edgekit", "libnothing.so", tmp_path / "x.ppm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "header: it starts with b'PK\\x03\\x04'; a bundle starts with b'EDGEKIT\\x00'" in done.stderr
