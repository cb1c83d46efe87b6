"""A verb that needs a package of an extra which is not installed ends with its pip line and exit code 3."""

from __future__ import annotations

import configparser
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import edgekit
from edgekit.cli.command_group import EXTRAS, PACKAGES, all_verbs
from tests.fixtures import models
from tests.fixtures.child_processes import run_python
from tests.fixtures.command_line import Call
from tests.fixtures.command_line import call as call

ROOT = Path(__file__).resolve().parents[2]
MODULES = {module: extra for extra, modules in EXTRAS.items() for module in modules.split()}
OF_OTHERS = ("all", "demo", "docs", "jpeg", "tensorrt", "test")
"""Extras without packages of their own, or that no verb needs."""
OF_ENGINES = {
    "ort", "webgpu", "tflite", "openvino", "ncnn", "coreml", "coreai", "tensorrt-check", "tflm", "ethos-u",
    "qnn",
}  # fmt: skip
ENGINES = ("openvino", "ncnn", "coremltools", "coreai", "tensorrt_rtx", "tflite_micro", "ethosu")
HIDE = """
import importlib.machinery, json, sys

hidden, commands = json.load(sys.stdin)

class Shown(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

sys.meta_path = [Shown if one is importlib.machinery.PathFinder else one for one in sys.meta_path]
from click.testing import CliRunner
from edgekit.cli import main
results = []
for words in commands:
    sys.argv = ["edgekit", *words]
    result = CliRunner().invoke(main, words)
    failed = None if isinstance(result.exception, SystemExit) else result.exception
    results.append([result.exit_code, result.output, repr(failed) if failed else ""])
print(json.dumps(results))
"""


def test_every_package_of_an_extra_is_known() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    for extra, lines in config["options.extras_require"].items():
        if extra in OF_OTHERS or extra in OF_ENGINES:
            continue
        known = {PACKAGES.get(module, module).replace("_", "-") for module in MODULES}
        named = {re.split(r"[^\w.-]", line, maxsplit=1)[0].replace("_", "-") for line in lines.split("\n")}
        packages = {name for name in named if name and not name.startswith(("#", "%"))}
        # Parts of one product: one of its modules stands for all.
        parts = {"opentelemetry-exporter-otlp-proto-http"}
        assert packages - known - parts == set(), extra


@pytest.mark.parametrize("module", MODULES)
def test_a_failed_import_below_any_verb_is_a_missing_package(
    module: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def needs(**_: Any) -> None:
        importlib.import_module(module)

    monkeypatch.setitem(sys.modules, module, None)
    for words, command in all_verbs().items():
        monkeypatch.setattr(command, "parse_args", lambda *_: [])
        monkeypatch.setattr(command, "callback", needs)
        result = call(*words.split())
        assert result.exit_code == 3, words
        package = PACKAGES.get(module, module.replace("_", "-"))
        assert f"{package} is not installed, and edgekit {words} needs it: pip install" in result.output
        assert f"[{MODULES[module]}]" in result.output


def test_another_failed_import_is_a_bug(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def needs(**_: Any) -> None:
        importlib.import_module("edgekit.no_such_module")

    command: click.Command = all_verbs()["inspect"]
    monkeypatch.setattr(command, "parse_args", lambda *_: [])
    monkeypatch.setattr(command, "callback", needs)
    with pytest.raises(ModuleNotFoundError):
        call("inspect")


@pytest.mark.needs_ort
def test_no_verb_ends_in_a_traceback_on_a_device(tmp_path: Path) -> None:
    """The extra [tflite] alone: every verb, and the options that need more than the verb does."""
    model = models.write(tmp_path, models.SMALL_CNN)
    bundle = edgekit.build(model, targets=["ort"]).save(tmp_path / "m.edgekit")
    np.save(tmp_path / "s.npy", np.zeros((1, 3, 16, 16), np.float32))
    (tmp_path / "cascade.toml").write_text('[[stages]]\nname = "a"\nbundle = "m.edgekit"\n')
    (tmp_path / "matrix.toml").write_text('[[models]]\nsource = "small.onnx"\ntargets = ["ort"]\n')
    out, source, samples = tmp_path / "out", f"--source={model}", tmp_path / "s.npy"
    commands: dict[str, list[object]] = {
        "targets": [], "doctor": [], "devices": [tmp_path / "no-device"], "check": [model],
        "build": [model, "-t", "tflite", "-o", out], "inspect": [bundle], "verify": [bundle],
        "evaluate": [bundle, "--samples", tmp_path],
        "explain": [bundle], "bench": [bundle], "report": [bundle, "-o", tmp_path / "r.html"],
        "run": [bundle, "-i", samples], "generate": [bundle, "-p", "Hello"], "serve": [bundle],
        "export": [bundle, "ort-fp32", "-o", out, "--metadata"],
        "model import": [model, "-o", tmp_path / "i.onnx"], "model card": [model, "-o", tmp_path / "c.toml"],
        "model shrink": [model, "-o", tmp_path / "h.onnx", "--samples", samples],
        "model distil": [model, "-o", tmp_path / "d.onnx"],
        "bundle cascade": [tmp_path / "cascade.toml", "-o", out],
        "bundle defer": [bundle, bundle, "--disagreement", ".1", "--samples", samples, "-o", out],
        "bundle rebuild": [bundle, source], "bundle drift": [bundle, samples, samples, "-o", out],
        "bundle select": [bundle, "ort-fp32", "-o", out],
        "bundle log": [bundle, "--mlflow", "sqlite:///m.db"], "batch build": [tmp_path / "matrix.toml"],
        "release sign": [bundle, "--key", tmp_path / "key"], "release provenance": [bundle],
        "release fleet": [tmp_path], "release publish": [bundle, "--repo", out, "--keys", out],
        "store update": [tmp_path / "store"], "store install": [bundle, tmp_path / "store"],
        "store status": [tmp_path / "store"], "store commit": [tmp_path / "store"],
        "store rollback": [tmp_path / "store"],
    }  # fmt: skip
    assert set(commands) == set(all_verbs())
    lines = [[*words.split(), *map(str, arguments)] for words, arguments in commands.items()]
    lines += [["run", "hf://a/b", "-i", str(samples)], ["inspect", "hf://a/b"], ["serve", "hf://a/b"],
              ["export", str(bundle), "--triton", str(out)], ["export", str(bundle), "--web", str(out)],
              ["export", str(bundle), "-o", str(out), "--app", "android"]]  # fmt: skip
    hidden = [*MODULES, *ENGINES]
    done = run_python(HIDE, cwd=tmp_path, input=json.dumps([hidden, lines]), check=True)
    results = dict(zip(map(" ".join, lines), json.loads(done.stdout.splitlines()[-1]), strict=True))
    assert {words: failed for words, (_, _, failed) in results.items() if failed} == {}
    error = re.compile(r"^error: .*is not installed, and", re.M)  # a note about one is no error
    missing = [words for words, (_, output, _) in results.items() if error.search(output)]
    assert {words: results[words][0] for words in missing} == dict.fromkeys(missing, 3)
    needing = (
        "serve",
        "model card",
        "bundle rebuild",
        "export",
        "run hf://",
        "check",
        "build",
        "report",
        "model",
    )
    for words in needing:
        assert any(line.startswith(words) for line in missing), words
