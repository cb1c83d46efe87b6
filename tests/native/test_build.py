"""The command that compiles libedgekit, and what the wheel carries."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from edgekit.errors import EdgeKitError, MissingDependency
from edgekit.native import build
from tests.native.library import compiled

ROOT = Path(__file__).resolve().parents[2]


def test_sources_are_small_and_in_the_wheel() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert "edgekit.native" in config["options"]["packages"].split()
    patterns = config["options.package_data"]["edgekit.native"].replace(" ", "").split(",")
    carried = {path for pattern in patterns for path in build.FOLDER.glob(pattern) if path.is_file()}
    files = {path for path in build.FOLDER.rglob("*") if path.is_file()}
    files -= {path for path in files if path.suffix in (".py", ".pyc") or path.name == ".clang-format"}
    assert carried == files
    assert len(build.sources()) > 20
    for path in files:
        assert len(path.read_text().splitlines()) < 400, path


@pytest.mark.needs_compiler
def test_the_interface_is_what_the_library_exports() -> None:
    header = (build.INCLUDE / "edgekit.h").read_text()
    declared = set(re.findall(r"^\w+_API .*?(edgekit_[a-z0-9_]+)\(", header, re.MULTILINE))
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", compiled()], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines() if " T " in line}
    assert {name for name in exported if name.startswith("edgekit_")} == declared
    assert len(declared) == 25


def test_a_compiler_that_fails_is_an_error_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(EdgeKitError, match="libedgekit does not compile with sh"):
        build.compile_library(tmp_path, compiler=["sh", "-c", "echo no >&2; exit 1"])


def test_jni_is_for_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as error:
        build.main(["-o", str(tmp_path), "--jni", "--target", "aarch64-macos"])
    assert error.value.code == 2
    assert "--jni compiles for this machine, whose JDK has the headers" in capsys.readouterr().err


def test_no_jdk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingDependency, match=r"^jni\.h is not installed, and compiling with --jni"):
        build.jni_flags()


def test_no_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingDependency):
        build.compiler_command()
    assert build.main(["-o", str(tmp_path)]) == 3
    assert capsys.readouterr().err.strip() == (
        "ziglang is not installed, and compiling libedgekit needs it: pip install ziglang"
    )
