"""An option of a build is declared in one place, and reaches all others by itself."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edgekit
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.system.declared_options import declared
from tests.fixtures import models

PACKAGE = Path(__file__).resolve().parents[2] / "edgekit"
FILE = Path("compiler", "build", "build_request.py")
NEW = """
    sparsity: float | None = field(default=None, metadata=option(
        "Share of the weights that are zero.", help="Share of zero weights.", metavar="SHARE",
    ))  # fmt: skip
"""
DESCRIBE = """
import inspect, json, edgekit
from edgekit.batch.matrix import OPTIONS
parameter = inspect.signature(edgekit.build).parameters["sparsity"]
print(json.dumps([str(parameter), "sparsity: Share of the weights" in edgekit.build.__doc__,
                  OPTIONS["sparsity"].__name__]))
"""


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A copy of the package with one more field in one file."""
    ignored = shutil.ignore_patterns("tests", "build_request.*.pyc")
    shutil.copytree(PACKAGE, tmp_path / "changed" / "edgekit", ignore=ignored)
    file = tmp_path / "changed" / "edgekit" / FILE
    text = file.read_text("utf-8")
    before = "    trust_pickle: bool = field("
    assert text.count(before) == 1
    file.write_text(text.replace(before, NEW.lstrip("\n") + before), "utf-8")
    return tmp_path / "changed"


@pytest.mark.needs_ort
def test_a_new_option_of_build_is_one_field_of_one_file(changed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(changed)}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    models.write(tmp_path, models.SMALL_CNN).rename(tmp_path / "m.onnx")
    command = "from edgekit.cli import main; main()"

    # The command line, the child process that builds, and the manifest.
    built = run("-c", command, "build", "m.onnx", "-t", "ort", "--sparsity", "0.5", "--json")
    assert json.loads(built)["bundle"] == "m.edgekit"
    assert stored(tmp_path / "m.edgekit") == 0.5
    # The function and the keys of a matrix.
    assert json.loads(run("-c", DESCRIBE)) == ["sparsity: float | None = None", True, "float"]
    # A batch, and the rebuild of its bundle.
    (tmp_path / "all.toml").write_text(
        'models = ["m.onnx"]\ntargets = ["ort"]\noptions.sparsity = 0.25\n', "utf-8"
    )
    run("-c", command, "build-all", "all.toml", "--workers", "1")
    made = tmp_path / "all" / "m-ort-fp32.edgekit"
    assert stored(made) == 0.25
    run("-c", command, "rebuild", str(made), "--model", "m.onnx", "-o", "again.edgekit")
    assert stored(tmp_path / "again.edgekit") == 0.25


def stored(bundle: Path) -> object:
    with edgekit.Bundle.open(bundle) as opened:
        return opened.manifest["options"].get("sparsity")


def test_every_field_is_described_and_every_option_has_a_text() -> None:
    fields = declared(BuildRequest)
    assert [each.name for each in fields] == list(inspect.signature(edgekit.build).parameters)
    assert [each.name for each in fields if not each.option.doc.endswith(".")] == []
    unspelled = {each.name for each in fields if not each.option.help}
    assert unspelled == {"model", "example_inputs", "progress"}, "arguments of Python alone; model is MODEL"


def test_the_types_of_options_are_read_from_the_annotations() -> None:
    kinds = {each.name: each.kind for each in declared(BuildRequest)}
    assert kinds["context"] is int
    assert kinds["time_budget"] is float
    assert kinds["lengths"] is list
    assert kinds["io"] is str
    assert kinds["fallback"] is bool
    assert kinds["draft"] is Path
    assert kinds["example_inputs"] is list
    assert kinds["progress"] is object
