"""samples/third_party_target in a new environment: installed, found, built, run, fallen back from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.tensor_spec import Array
from tests.fixtures.models import SMALL_CNN, write

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "third_party_target"
ABSENT = [name for name in ("ncnn", "pnnx", "pip") if find_spec(name) is None]
if find_spec("setuptools") is None or int(version("setuptools").partition(".")[0]) < 71:
    ABSENT.append("setuptools 71")  # the first that builds wheels by itself is 70.1
pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(
        bool(ABSENT), reason=f"no {', '.join(ABSENT)} (pip install ncnn; pip install --no-deps pnnx)"
    ),
]
SESSION = """
import json, sys
import numpy as np
from edgekit.runtime import Session
if "missing" in sys.argv:
    sys.modules["ncnn"] = None
if "older" in sys.argv:
    import ncnn
    ncnn.layer_to_index = lambda name: -1 if name == "Convolution" else 0
with Session("small.edgekit", engine="ncnn") as session:
    answers = session.run({"image": np.load("image.npy")})
    hops = [[hop.from_, hop.to, hop.reason] for hop in session.fallbacks]
    print(json.dumps([session.active.engine, answers["features"].tolist(), hops]))
"""


class Environment:
    """A new environment with the sample alone in it; all else is found where this one has it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        venv.create(home / "env", with_pip=False)
        self.python = home / "env" / "bin" / "python"
        site = Path(self.said("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        here = [path for path in sys.path if path.endswith("site-packages")]
        paths = [str(ROOT), str(ROOT / "targets"), *here]
        (site / "present.pth").write_text("\n".join(paths), "utf-8")
        command = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.python),
            "install",
            "--quiet",
            "--no-deps",
        ]
        copy = shutil.copytree(SAMPLE, home / "sample")  # building writes into the folder
        command += ["--no-build-isolation", "--disable-pip-version-check", "--no-index", str(copy)]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def said(self, program: str, *arguments: str) -> str:
        """What a program prints."""
        command = [str(self.python), "-c", program, *arguments]
        variables = {**os.environ, "EDGEKIT_CACHE": str(self.home / "cache")}
        done = subprocess.run(
            command, cwd=self.home, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def edgekit(self, *arguments: str) -> str:
        return self.said("import sys; from edgekit.cli.verbs import main; sys.exit(main())", *arguments)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("third_party"))


@pytest.fixture(scope="module")
def built(environment: Environment) -> Environment:
    """With small.edgekit, for ncnn and ort, and an image.npy."""
    write(environment.home, SMALL_CNN)
    image = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
    np.save(environment.home / "image.npy", image)
    environment.edgekit("build", "model.onnx", "-t", "ncnn", "-t", "ort", "-o", "small.edgekit")
    return environment


def test_its_packages_own_tests_pass_there(environment: Environment) -> None:
    told = environment.said(
        "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))",
        *(
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            "sample",
            "sample/tests/test_edgekit_ncnn.py",
        ),
    )
    assert " passed" in told
    assert "skipped" not in told


def test_it_is_listed_like_all_others(environment: Environment) -> None:
    (row,) = [line for line in environment.edgekit("targets").splitlines() if line.split()[:1] == ["ncnn"]]
    assert row.split() == ["ncnn", "ncnn", "on", "the", "CPU", "ncnn", version("ncnn")]


def test_it_is_built_verified_and_run(built: Environment) -> None:
    bundle = edgekit.Bundle.open(built.home / "small.edgekit")
    found = {variant.name: variant for variant in bundle.variants}
    assert found["ncnn-fp32"].status == f"verified on ncnn {version('ncnn')}"
    assert bundle.manifest["tools"]["edgekit-ncnn"] == "0.1.0"
    engine, answers, hops = json.loads(built.said(SESSION))
    assert (engine.split()[0], hops) == ("ncnn", [])
    expected = reference(built.home)
    assert compare([expected], [np.array(answers, np.float32)], 90.0).within_limit


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("missing", "ncnn is not installed (pip install ncnn)"),
        ("older", "has no layer Convolution, which "),
    ],
)
def test_where_it_does_not_run_ort_answers(built: Environment, why: str, reason: str) -> None:
    engine, answers, ((from_, to, said),) = json.loads(built.said(SESSION, why))
    assert (engine.split()[:2], from_, to) == (["ONNX", "Runtime"], "ncnn-fp32", "ort-fp32")
    assert reason in said
    assert compare([reference(built.home)], [np.array(answers, np.float32)], 90.0).within_limit


def reference(home: Path) -> Array:
    """What the model answers."""
    model = open_model(home / "model.onnx")
    return Reference(model).run({"image": np.load(home / "image.npy")})["features"]
