"""Variants on another release of their engine, in a process and a Python environment of its own."""

from __future__ import annotations

import re
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import edgekit
from edgekit.bundle.variant import Status
from edgekit.cli import main
from edgekit.compiler.build.older_engines import judge, older_releases
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.toolchains.engine_releases import release_toolchain
from edgekit.compiler.toolchains.environment import RECORD, Environment, folder_of, installed, lock_digest
from edgekit.errors import EngineError, MissingDependency, UsageError
from edgekit.system.atomic_files import write_atomically
from edgekit.system.cache_folder import cache_folder
from edgekit.system.formats import strict_json
from edgekit.target import Artifact
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import TensorSpec
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

Release = Callable[[str], None]

OLDER = "import os, onnxruntime\nonnxruntime.__version__ = '0.9.0'\n"
REFUSING = """
def refuse(*arguments, **settings):
    raise RuntimeError("Opset 20 is under development")
onnxruntime.InferenceSession = refuse
"""
ROUNDING = """
import numpy
class Rounding(onnxruntime.InferenceSession):
    def run(self, *arguments, **settings):
        return [numpy.round(array, 1) for array in super().run(*arguments, **settings)]
onnxruntime.InferenceSession = Rounding
"""
ENDING = """
class Ending(onnxruntime.InferenceSession):
    def run(self, *arguments, **settings):
        os._exit(3)
onnxruntime.InferenceSession = Ending
"""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """Makes the environment of "ONNX Runtime 0.9": the installed one, changed by a Python text."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    toolchain = release_toolchain("onnxruntime==0.9")

    def made(change: str) -> None:
        folder = folder_of(toolchain)
        venv.create(folder, with_pip=False, symlinks=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (packages / "installed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
        (packages / "sitecustomize.py").write_text(OLDER + change, "utf-8")
        record = {"lock": lock_digest(toolchain)}
        write_atomically(folder / RECORD, [strict_json.encode(record)], 0o600)

    monkeypatch.setattr(Environment, "reads", lambda self: [str(self.folder), sys.prefix, sys.base_prefix])
    return made


def built(folder: Path, **more: Any) -> edgekit.Bundle:
    model = models.write(folder, models.SMALL_CNN)
    return edgekit.build(model, targets=["ort"], runtime=["onnxruntime>=0.9"], trusted=True, **more)


def test_a_variant_is_verified_on_both_releases(release: Release, tmp_path: Path) -> None:
    release("")
    bundle = built(tmp_path)
    (variant,) = bundle.variants
    assert variant.status.endswith(" and ONNX Runtime 0.9.0")
    assert variant.status.startswith("verified on ONNX Runtime 1.")
    older = variant.evidence["older"]
    assert older["engine"] == "ONNX Runtime 0.9.0"
    assert older["snr_db"] is None or older["snr_db"] > 100
    assert bundle.manifest["options"]["runtime"] == ["onnxruntime>=0.9"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (REFUSING, "ONNX Runtime 0.9.0 did not load .*: Opset 20 is under development"),
        (
            ROUNDING,
            "SNR [0-9.]+ dB on ONNX Runtime 0.9.0, but (SNR [0-9.]+ dB|exact) on the installed release",
        ),
        (ENDING, "the process of the toolchain onnxruntime==0.9 exited with code 3"),
    ],
)
def test_a_variant_that_fails_there_is_rejected_with_the_reason(
    release: Release, tmp_path: Path, change: str, reason: str
) -> None:
    release(change)
    (variant,) = built(tmp_path).variants
    assert re.search(reason, variant.status)
    assert not variant.usable
    assert "older" not in variant.evidence


def test_a_crash_takes_no_other_variant_with_it(release: Release, tmp_path: Path) -> None:
    release(ENDING)
    older = older_releases(["onnxruntime>=0.9"], [resolve(find_profile("ort"))])["ort"]
    files = {"model.onnx": models.write(tmp_path, models.SMALL_CNN)}
    inputs = [TensorSpec("image", "float32", (1, 3, 16, 16))]
    for _ in range(2):
        runner = older.open_runner(files, inputs, [TensorSpec("scores", "float32", (1, 4))], {}, 1)
        with pytest.raises(EngineError, match="exited with code 3"):
            runner.run({"image": np.zeros((1, 3, 16, 16), np.float32)})
        runner.close()


def test_a_variant_that_is_as_accurate_as_on_the_installed_release_is_kept(
    release: Release, tmp_path: Path
) -> None:
    """int8 is chosen by the metric: 15 dB may be enough, although 20 dB is the limit of a single run."""
    variant = VariantBuild(
        "v", resolve(find_profile("ort")), "int8", Artifact({}), "", {}, None, Status.VERIFIED
    )
    reference = ReferenceOutputs([], [TensorSpec("y", "float32", (1,))], [])
    judge(variant, "ONNX Runtime 0.9.0", (15.0, 16.0), reference)
    assert variant.ran
    judge(variant, "ONNX Runtime 0.9.0", (9.0, 16.0), reference)
    assert variant.reason == "SNR 9.0 dB on ONNX Runtime 0.9.0, but SNR 16.0 dB on the installed release"


def test_a_release_that_is_not_installed_is_named_before_anything_is_built(
    release: Release, tmp_path: Path
) -> None:
    stages: list[str] = []
    with pytest.raises(MissingDependency, match=r"run edgekit toolchain install onnxruntime==0\.9$"):
        built(tmp_path, progress=lambda stage: stages.append(stage.name))
    assert not stages


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (["onnxruntime==1.17"], "'onnxruntime==1.17' is not the release of an engine; give PACKAGE>=VERSION"),
        (
            ["torch>=2"],
            "'torch>=2' is not the release of an engine; .*ai-edge-litert, ncnn, onnxruntime, open",
        ),
        (["onnxruntime>=../1"], "'onnxruntime>=../1' is not the release"),
        (
            ["openvino>=2024.0"],
            "--runtime openvino>=2024.0: no target of this build runs on it; add -t openv",
        ),
        (["onnxruntime>=0.9", "onnxruntime>=1.17"], "ort has another one already; give the oldest alone"),
    ],
)
def test_a_wrong_requirement(release: Release, tmp_path: Path, runtime: list[str], message: str) -> None:
    release("")
    model = models.write(tmp_path, models.SMALL_CNN)
    with pytest.raises(UsageError, match=message):
        edgekit.build(model, targets=["ort"], runtime=runtime, trusted=True)


def test_on_the_command_line(tmp_path: Path) -> None:
    model = str(models.write(tmp_path, models.SMALL_CNN))
    ended = CliRunner().invoke(main, ["build", model, "-t", "ort", "--runtime", "onnxruntime"])
    assert "'onnxruntime' is not of the form PACKAGE>=VERSION, e.g. onnxruntime>=1.17" in ended.output


OLD = {"onnxruntime==1.17": "ort", "openvino==2024.0": "openvino", "tflite-runtime==2.14": "tflite"}
CACHE = cache_folder()
INSTALLED = [name for name in OLD if installed(release_toolchain(name))]


@pytest.mark.skipif(not INSTALLED, reason=f"no old release: edgekit toolchain install {next(iter(OLD))}")
@pytest.mark.parametrize("name", INSTALLED or OLD)
def test_on_an_older_release_in_a_confined_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(CACHE))
    model, (package, _, version) = models.write(tmp_path, models.SMALL_CNN), name.partition("==")
    bundle = edgekit.build(model, targets=[OLD[name]], runtime=[f"{package}>={version}"])
    assert [version in variant.evidence["older"]["engine"] for variant in bundle.variants] == [True]
