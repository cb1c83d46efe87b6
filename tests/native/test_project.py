"""Projects of `edgekit export --app`; the C++ one is built by CMake and run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edgekit.bundle import Bundle
from edgekit.cli import main
from edgekit.errors import UsageError
from edgekit.native import build
from edgekit.native.project import PLATFORMS, write_project
from edgekit.runtime import Session
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.library import ort_library
from tests.native.litert_models import litert_library, litert_yolox
from tests.native.models import COLOUR_CARD, COLOURS, colours_bundle, model_bundle, yolox_bundle

FRAME = np.random.default_rng(1).integers(0, 256, (48, 64, 3)).astype(np.uint8)


def two_targets() -> Bundle:
    """Return a bundle with a variant for each of two engines."""
    model = onnx_bytes(COLOURS)
    models = {"phone": model + b"", "pc": model}
    return model_bundle(models, model, COLOUR_CARD, {"phone": "coreml"})


@pytest.mark.needs_ort
@pytest.mark.parametrize("platform", list(PLATFORMS))
def test_a_project_holds_the_core_and_the_variants_that_it_runs(tmp_path: Path, platform: str) -> None:
    path = two_targets().save(tmp_path / "two.edgekit")
    folder = tmp_path / platform
    done = CliRunner().invoke(main, ["export", str(path), "--app", platform, "-o", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    chosen, other = ("phone", "pc") if platform == "ios" else ("pc", "phone")
    assert told["variants"] == [chosen]
    assert told["notes"] == [f"not in the app: {other}"]
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert {Path(file).relative_to(folder).as_posix() for file in told["files"]} == files
    (bundle,) = folder.rglob("*.edgekit")
    with Bundle.open(bundle) as opened:
        assert [variant.name for variant in opened.variants] == [chosen]
        assert opened.card == COLOUR_CARD
        opened.verify_entries()
        assert not any(entry["name"].startswith(f"v/{other}/") for entry in opened.manifest["entries"])
    core = folder / PLATFORMS[platform].core
    for name in build.sources():
        assert (core / name).read_bytes() == (build.FOLDER / name).read_bytes()
        assert f'#include "{name}"' in (core / "library.cpp").read_text()
    assert (core / "include" / "edgekit.h").is_file()
    assert (folder / "README.md").is_file()
    assert not [file for file in files if "__pycache__" in file or file.endswith(".py")]


@pytest.mark.needs_ort
@pytest.mark.parametrize("targets", [("ort",), ("tflite",), ("ort", "tflite")])
def test_an_android_project_names_the_engines_of_its_variants(
    tmp_path: Path, targets: tuple[str, ...]
) -> None:
    model = onnx_bytes(COLOURS)
    bundle = model_bundle(dict.fromkeys(targets, model), model, COLOUR_CARD, {name: name for name in targets})
    made = write_project(bundle, "android", tmp_path / "app")
    assert made.variants == list(targets)
    script = (tmp_path / "app/edgekit/build.gradle.kts").read_text("utf-8")
    packages = re.findall(r'implementation\("(.*?):[0-9.]+"\)', script)
    known = {
        "ort": "com.microsoft.onnxruntime:onnxruntime-android",
        "tflite": "com.google.ai.edge.litert:litert",
    }
    assert packages == [known[target] for target in targets]


@pytest.mark.needs_ort
def test_refusals(tmp_path: Path) -> None:
    bundle = two_targets()
    with pytest.raises(UsageError) as error:
        write_project(bundle, "android", tmp_path / "a", "phone")
    assert str(error.value) == (
        "new bundle has no variant 'phone' that an app for android runs; it has phone (coreml), pc (ort). "
        "Build with -t ort or -t tflite. Nothing was written"
    )
    with pytest.raises(
        UsageError, match=r"has no variant that an app for ios runs; .* Build with -t coreml\."
    ):
        write_project(colours_bundle(), "ios", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    with pytest.raises(
        UsageError, match=r"a is not an empty folder; choose another one\. Nothing was written"
    ):
        write_project(bundle, "cpp", tmp_path / "a")
    path = str(bundle.save(tmp_path / "two.edgekit"))
    for arguments in (["--app", "cpp"], ["--app", "cpp", "--metadata", "-o", str(tmp_path / "b")]):
        done = CliRunner().invoke(main, ["export", path, *arguments])
        assert done.exit_code == 2
    assert not (tmp_path / "b").exists()


def build_program(folder: Path) -> Path:
    """Build a C++ project and return its program."""
    configure: list[str | Path] = ["cmake", "-S", folder, "-B", folder / "build"]
    compile_: list[str | Path] = ["cmake", "--build", folder / "build"]
    for arguments in (configure, compile_):
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "app"


def run_program(program: Path, bundle: Path, library: str, picture: Path) -> list[list[str]]:
    """Return the words of a program's lines for a picture."""
    command: list[str | Path] = [program, bundle, library, picture]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^runs [\w-]+\n\Z", done.stderr, re.MULTILINE)
    for wrong in (
        command[:3],
        [*command[:3], __file__],
        [command[0], picture, *command[2:]],
    ):
        failed = subprocess.run(wrong, capture_output=True, text=True, timeout=100, check=False)
        assert (failed.returncode in (1, 2), bool(failed.stderr)) == (True, True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.needs_ort
@pytest.mark.needs_compiler
@pytest.mark.needs_shared
@pytest.mark.needs_tflite
def test_the_cpp_project_is_built_and_finds_what_python_finds(tmp_path: Path, shared: Path) -> None:
    """One program runs variants for ONNX Runtime and for LiteRT, by the library that it is given."""
    from PIL import Image

    if not (shutil.which("cmake") and shutil.which("c++") and ort_library()):
        pytest.skip("no cmake or c++, or this wheel of onnxruntime has no libonnxruntime.so")
    photo = sorted((shared / "data" / "coco128").rglob("*.jpg"))[0]
    frame = np.ascontiguousarray(Image.open(photo).convert("RGB"))
    picture = tmp_path / "frame.ppm"
    picture.write_bytes(b"P6\n%d %d\n255\n" % (frame.shape[1], frame.shape[0]) + frame.tobytes())
    (tmp_path / "litert").mkdir()
    with Bundle.open(litert_yolox(shared, tmp_path / "litert")) as bundle:
        project = write_project(bundle, "cpp", tmp_path / "app")
    assert project.variants == ["tflite-fp32"]
    program = build_program(tmp_path / "app")
    of_ort = yolox_bundle(shared).save(tmp_path / "ort.edgekit")
    for path, library in ((tmp_path / "app" / "model.edgekit", litert_library()), (of_ort, ort_library())):
        rows = run_program(program, path, library, picture)
        with Session(path, threads=1) as session:
            expected = session.predict(frame)
        assert [(int(row[0]), row[1]) for row in rows] == [(one.index, one.label) for one in expected]
        numbers = np.array([row[2:] for row in rows], np.float64)
        assert numbers[:, 0] == pytest.approx(expected.scores, rel=1e-5)  # printed with six digits
        assert numbers[:, 1:] == pytest.approx(expected.boxes, rel=1e-5, abs=1e-3)
        assert len(rows) > 0


@pytest.mark.needs_ort
@pytest.mark.parametrize("platform", list(PLATFORMS))
def test_a_language_model_is_refused_with_the_true_reason(tmp_path: Path, platform: str) -> None:
    with Bundle.open(chat_bundle(tmp_path / "talk.edgekit")) as bundle, pytest.raises(UsageError) as error:
        write_project(bundle, platform, tmp_path / "app")
    assert "talk.edgekit is a language model, which an app's libedgekit can't run" in str(error.value)
    assert not (tmp_path / "app").exists()
