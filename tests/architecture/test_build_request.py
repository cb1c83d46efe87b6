"""An option of a build is declared in one place, and reaches all others by itself."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.cli.command_group import all_verbs
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.distil_request import DistilRequest, DraftRequest
from edgekit.compiler.pipeline.shrink_request import ShrinkRequest
from edgekit.generate import TextSession
from edgekit.generate.device.options import GenerateOptions
from edgekit.generate.host.distil.distil_draft import distil_draft
from edgekit.serve.serve_request import ServeRequest
from edgekit.serve.server import serve
from edgekit.system.declared_options import declared
from tests.fixtures import models

PACKAGE = Path(__file__).resolve().parents[2] / "edgekit"
FILE = Path("compiler", "pipeline", "build_request.py")
NEW = """
    sparsity: float | None = field(default=None, metadata=option(
        "Share of the weights that are zero.", metavar="SHARE",
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
    run("-c", command, "batch", "build", "all.toml", "--workers", "1")
    made = tmp_path / "all" / "m-ort-fp32.edgekit"
    assert stored(made) == 0.25
    run("-c", command, "bundle", "rebuild", str(made), "--source", "m.onnx", "-o", "again.edgekit")
    assert stored(tmp_path / "again.edgekit") == 0.25


def stored(bundle: Path) -> object:
    with edgekit.Bundle.open(bundle) as opened:
        return opened.manifest["options"].get("sparsity")


@pytest.mark.parametrize(
    ("function", "verb", "request_of", "unspelled"),
    [
        (edgekit.build, "build", BuildRequest, {"model", "example_inputs", "progress"}),
        (edgekit.shrink, "model shrink", ShrinkRequest, {"model", "progress"}),
        (edgekit.distil, "model distil", DistilRequest, {"teacher", "checkpoint", "progress"}),
        (distil_draft, "model distil", DraftRequest, {"model", "samples", "checkpoint", "progress"}),
        (serve, "serve", ServeRequest, {"bundles", "announce"}),
    ],
)
def test_a_function_and_its_verb_have_the_fields_of_the_request(
    function: Callable[..., Any], verb: str, request_of: type, unspelled: set[str]
) -> None:
    found = declared(request_of)
    parameters = inspect.signature(function).parameters
    assert {each.name for each in found} == set(parameters)
    assert [each.name for each in found if not each.option.doc.endswith(".")] == []
    assert all(f"    {each.name}: {each.option.doc[:20]}" in (function.__doc__ or "") for each in found)
    assert {each.name for each in found if each.option.python_only} == unspelled, "arguments of Python alone"
    options = {each.name for each in all_verbs()[verb].params}
    assert {each.name for each in found} - unspelled <= options


@pytest.mark.parametrize("function", [TextSession.generate, TextSession.chat])
def test_the_options_of_a_text_are_declared_once(function: Callable[..., Any]) -> None:
    found = declared(GenerateOptions)
    parameters = inspect.signature(function).parameters
    assert [each.name for each in found] == list(parameters)[-len(found) :]
    assert all(parameters[each.name].default == each.default for each in found)
    assert all(f"    {each.name}: {each.option.doc[:20]}" in (function.__doc__ or "") for each in found)
    assert "options: " not in (function.__doc__ or "")
    options = {each.name for each in all_verbs()["generate"].params}
    assert {each.name for each in found if not each.option.python_only} <= options
    unspelled = {each.name for each in found if each.option.python_only}
    assert unspelled == {"repetition_penalty", "json_schema", "grammar", "deadline_ms"}


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


def test_an_argument_without_a_default_is_a_required_option() -> None:
    required = {each.name for each in all_verbs()["model shrink"].params if each.required}
    assert required == {"model", "samples", "output"}
    assert {each.name for each in all_verbs()["bundle rebuild"].params if each.required} == {"bundle"}
