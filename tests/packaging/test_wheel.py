"""The archives as users get them: what they hold, and a bundle on a device with the wheel and one engine."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit import __version__
from edgekit.system.formats.strict_tables import load_toml
from tests.fixtures.models import SMALL_CNN, write

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.needs_tflite, pytest.mark.needs_ort]

CARD = """
title = "small"

[inputs.image]
kind = "image"
shape = [1, 3, 16, 16]
layout = "NCHW"
colour = "RGB"
resize = "stretch"

[task]
kind = "classify"
decode = "probabilities"
outputs = { scores = "scores" }
labels = ["a", "b", "c", "d"]
"""
BUILD = (
    "import sys; from setuptools import build_meta as backend;"
    "print(getattr(backend, 'build_' + sys.argv[1])(sys.argv[2]))"
)
SESSION = """
import json, sys
import numpy as np
from edgekit.runtime import Session
with Session("small.edgekit") as session:
    answers = session.run({"image": np.load("image.npy")})
    top = session.predict(np.load("photograph.npy"))
    print(json.dumps([session.active.engine, answers["scores"].tolist(), len(top)]))
"""
UNREACHED = ("No matching distribution found", "Could not fetch", "ConnectionPool(", "Connection broken")
Verb = Callable[..., "subprocess.CompletedProcess[str]"]


def pip(*arguments: str | Path) -> None:
    """``pip install``; where it reaches no index, what needs it is skipped."""
    if find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if any(words in done.stderr for words in UNREACHED):
        pytest.skip("pip reaches no package index: " + done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


def build(kind: str, tree: Path, to: Path, setuptools: Path) -> Path:
    """Build an archive, ``sdist`` or ``wheel``, from a copy of the tree."""
    to.mkdir(parents=True)
    variables = {**os.environ, "PYTHONPATH": str(setuptools), "SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-c", BUILD, kind, str(to)]
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to / done.stdout.splitlines()[-1]


def copy_of_the_tree(to: Path) -> Path:
    """Without what git ignores; building writes into the tree."""
    anywhere = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")

    def ignored(folder: str, names: list[str]) -> set[str]:
        at_the_top = {"build", "dist", "out"} if Path(folder) == ROOT else set()
        return anywhere(folder, names) | at_the_top

    shutil.copytree(ROOT, to, ignore=ignored, copy_function=shutil.copyfile)
    return to


@pytest.fixture(scope="module")
def setuptools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with setuptools, as pyproject.toml wants it."""
    project = load_toml((ROOT / "pyproject.toml").read_text("utf-8"), "pyproject.toml", ValueError)
    folder = tmp_path_factory.mktemp("setuptools")
    pip("install", "--target", folder, *project["build-system"]["requires"])
    return folder


@pytest.fixture(scope="module")
def archives(setuptools: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist and the wheel of the tree."""
    folder = tmp_path_factory.mktemp("archives")
    tree = copy_of_the_tree(folder / "tree")
    return {kind: build(kind, tree, folder / kind, setuptools) for kind in ("sdist", "wheel")}


def test_the_wheel_holds_the_packages_and_their_data(archives: dict[str, Path]) -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    packages = {name.replace(".", "/") for name in parser["options"]["packages"].split()}
    tasks = (ROOT / "edgekit" / "tasks").glob("*/__init__.py")
    packages |= {str(path.parent.relative_to(ROOT)) for path in tasks}
    with zipfile.ZipFile(archives["wheel"]) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
    metadata = f"edgekit_sdk-{__version__}.dist-info"
    held = {name for name in names if not name.startswith(f"{metadata}/")}
    code = {name for name in held if name.endswith(".py")}
    assert {name.rpartition("/")[0] for name in code} == packages

    data = {
        str(path.relative_to(root))
        for root in (ROOT, ROOT / "targets")
        for top in {name.partition("/")[0] for name in packages}
        for pattern in (
            "py.typed",
            "operators.json",
            "generate/host/judge/*.txt",
            "native/README.md",
            "serve/try.html",
            "native/standalone.cpp",
            "native/include/*.h",
            "native/source/*.h",
            "native/source/*.cpp",
            "native/cpp/**/*",
            "native/kotlin/**/*",
            "native/swift/**/*",
            "profiles/*.toml",
            "report/*.css",
            "report/*.html",
            "report/*.js",
            "report/*.txt",
            "toolchain.lock",
            "web/README.md",
            "web/package.json",
            *(f"web/*.{kind}" for kind in ("css", "html", "js", "lock", "ts", "wasm")),
        )
        for path in (root / top).glob(pattern)
        if path.is_file()
    }
    assert held - code == data
    assert {
        "edgekit/py.typed",
        "edgekit_tensorrt/operators.json",
        "edgekit_tflite/profiles/rpi5.toml",
    } <= data
    assert f"{metadata}/licenses/LICENSE" in names


def test_the_source_archive_builds_the_same_wheel(
    archives: dict[str, Path], setuptools: Path, tmp_path: Path
) -> None:
    with tarfile.open(archives["sdist"]) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    assert not (tree / "tests").exists()
    assert (tree / "README.md").is_file()
    wheel = build("wheel", tree, tmp_path / "wheel", setuptools)
    assert wheel.name == archives["wheel"].name
    assert wheel.read_bytes() == archives["wheel"].read_bytes()


def test_the_same_tree_gives_the_same_wheel(
    archives: dict[str, Path], setuptools: Path, tmp_path: Path
) -> None:
    wheel = build("wheel", copy_of_the_tree(tmp_path / "tree"), tmp_path / "wheel", setuptools)
    assert wheel.read_bytes() == archives["wheel"].read_bytes()


@pytest.fixture(scope="module")
def device(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment ``env`` that has the wheel's extra tflite, a bundle and its inputs."""
    folder = tmp_path_factory.mktemp("device")
    venv.create(folder / "env", symlinks=True)
    wheel = f"edgekit-sdk[tflite] @ {archives['wheel'].as_uri()}"
    pip("--python", folder / "env" / "bin" / "python", "install", wheel)

    host = tmp_path_factory.mktemp("host")
    (host / "card.toml").write_text(CARD)
    model = write(host, SMALL_CNN)
    bundle = edgekit.build(model, targets=["tflite", "ort"], card=host / "card.toml")
    bundle.save(folder / "small.edgekit")
    given, expected = bundle.golden[0]
    np.save(folder / "image.npy", np.asarray(given["image"]))
    np.save(folder / "expected.npy", np.asarray(expected["scores"]))
    np.save(folder / "photograph.npy", np.zeros((20, 30, 3), np.uint8))
    return folder


@pytest.fixture(scope="module")
def verb(device: Path) -> Verb:
    """Run a program of the device's environment in its folder, with nothing of this environment."""

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        command = [str(device / "env" / "bin" / program), *arguments]
        variables = {**kept, "EDGEKIT_CACHE": str(device / "cache")}
        return subprocess.run(
            command, cwd=device, env=variables, capture_output=True, text=True, check=False, timeout=120
        )

    return run


def test_a_device_has_one_engine_and_nothing_of_the_host(verb: Verb) -> None:
    script = (
        "from importlib.metadata import distributions as d; print(*{x.metadata['Name'].lower() for x in d()})"
    )
    installed = set(verb("python", "-c", script).stdout.split())
    assert {"edgekit-sdk", "numpy", "click", "ai-edge-litert"} <= installed
    assert not installed & {"onnx", "onnx-ir", "onnx_ir", "onnxruntime", "openvino", "coremltools", "pillow"}


def test_a_session_runs_a_bundle(device: Path, verb: Verb) -> None:
    done = verb("python", "-c", SESSION)
    assert done.returncode == 0, done.stderr
    engine, scores, classes = json.loads(done.stdout)
    assert engine.startswith(("LiteRT ", "tflite-runtime "))
    np.testing.assert_allclose(scores, np.load(device / "expected.npy"), atol=1e-5)
    assert classes == 4


def test_the_verbs_of_a_device(verb: Verb) -> None:
    for arguments in (["run", "small.edgekit", "-i", "image=image.npy"], ["inspect", "small.edgekit"]):
        done = verb("edgekit", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
    doctor = json.loads(verb("edgekit", "doctor", "--json").stdout)
    states = {row["target"]: row["status"] for row in doctor["engines"]}
    assert (states["tflite"], states["ort"]) == ("ok", "missing")
    assert doctor["packaging"]["install"] == "pip install 'edgekit-sdk[build]'"
    done = verb("edgekit", "verify", "small.edgekit")
    assert done.returncode == 0, done.stderr
    assert "not run: onnxruntime is not installed" in " ".join(done.stdout.split())
    assert "pip install 'edgekit-sdk[ort]'" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["build", "m.onnx", "-t", "tflite", "-o", "m.edgekit"], "building a model"),
        (["check", "m.onnx", "-t", "tflite"], "checking a model"),
    ],
)
def test_a_verb_of_the_host_says_what_to_install(verb: Verb, arguments: list[str], missing: str) -> None:
    done = verb("edgekit", *arguments)
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == (
        f"error: onnx is not installed, and {missing} needs it: pip install 'edgekit-sdk[build]'"
    )


def test_a_picture_needs_pillow(device: Path, verb: Verb) -> None:
    (device / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = verb("edgekit", "run", "small.edgekit", "-i", "image=picture.png")
    assert done.returncode == 3
    assert (
        done.stderr == "error: pillow is not installed, and reading a picture needs it: pip install pillow\n"
    )
