"""Environments of toolchains: made whole or not at all, listed, removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.cli import doctor
from edgekit.compiler.toolchains.declaration import Toolchain, find_toolchain
from edgekit.compiler.toolchains.engine_releases import release_toolchain
from edgekit.compiler.toolchains.environment import (
    RECORD,
    Environment,
    folder_of,
    installed,
    lock_digest,
    require,
)
from edgekit.compiler.toolchains.install import install, remove
from edgekit.compiler.toolchains.list_toolchains import install_toolchain, remove_toolchain, toolchain_rows
from edgekit.errors import MissingDependency, ToolchainError, UsageError
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats import strict_json
from tests.compiler.toolchains.conftest import demo
from tests.fixtures.command_line import Call
from tests.fixtures.command_line import call as call


@pytest.fixture
def at_its_cache(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setenv("EDGEKIT_CACHE", str(environment.folder.parent.parent))
    return environment


def test_one_that_is_installed_is_found_by_all(
    at_its_cache: Environment, declared: Toolchain, call: Call
) -> None:
    assert installed(declared) == require(declared, "a test") == install(declared) == at_its_cache
    (row,) = json.loads(call("toolchain", "list", "--json").stdout)["toolchains"]
    assert row == {
        "name": "demo",
        "status": "ok",
        "purpose": "makes capitals",
        "folder": str(at_its_cache.folder),
        "size_mb": 1,
        "install": None,
    }
    assert "  toolchain demo: ok; makes capitals" in doctor.doctor_text(doctor.doctor([])).splitlines()
    again = call("toolchain", "install", "demo")  # no terms: it is there
    assert again.stdout == f"  demo is installed in {at_its_cache.folder}\n"


def test_another_lock_is_another_environment(at_its_cache: Environment, tmp_path: Path) -> None:
    assert installed(demo(tmp_path, "0" * 64)) is None


def test_one_that_is_missing(declared: Toolchain, call: Call) -> None:
    assert installed(declared) is None
    with pytest.raises(MissingDependency) as missing:
        require(declared, "compiling for a demo")
    assert str(missing.value) == (
        "the toolchain demo is not installed, and compiling for a demo needs it: "
        "run edgekit toolchain install demo"
    )
    assert call("toolchain", "remove", "demo").stdout == "  demo is not installed\n"
    words = "  toolchain demo: missing; makes capitals: edgekit toolchain install demo"
    assert words in doctor.doctor_text(doctor.doctor([])).splitlines()


def test_its_terms_are_accepted_or_nothing_is_made(declared: Toolchain, call: Call) -> None:
    result = call("toolchain", "install", "demo")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: Be kind.\n"
        "the terms of demo were not accepted, so nothing was installed: read them above, and accept them "
        "with --accept-terms\n"
    )
    assert not folder_of(declared).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["install"], "Error: Missing argument 'NAME'."),
        (["install", "other"], "error: no target has a toolchain 'other'; available: demo"),
        (["list", "demo"], "Error: Got unexpected extra argument (demo)"),
    ],
)
def test_wrong_use(declared: Toolchain, call: Call, arguments: list[str], said: str) -> None:
    result = call("toolchain", *arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, said)


def test_packages_with_other_bytes_leave_nothing_behind(wheels: Path, tmp_path: Path) -> None:
    toolchain = demo(tmp_path, "0" * 64)
    with pytest.raises(ToolchainError) as problem:
        install(toolchain)
    assert str(problem.value).startswith("the toolchain demo could not be installed (code 1)\n  ERROR: ")
    assert str(problem.value).endswith("read pip's output above, and run the same command again")
    assert not folder_of(toolchain).exists()


def test_what_an_interrupted_installation_left_is_none_and_is_replaced(
    toolchain: Toolchain, call: Call, declared: Toolchain
) -> None:
    left = folder_of(toolchain) / "lib" / "half.py"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    assert installed(toolchain) is None
    assert call("toolchain", "install", "demo", "--accept-terms").exit_code == 0
    assert not left.exists()
    assert installed(toolchain) is not None
    assert remove(toolchain)
    assert installed(toolchain) is None
    assert not folder_of(toolchain).exists()


def test_another_platform_or_python(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="the toolchain demo needs plan9-mips, but this machine is"):
        install(demo(tmp_path, "0" * 64, platform="plan9-mips"))
    with pytest.raises(ToolchainError, match=r"needs Python 3\.2 with its modules venv and ensurepip,"):
        install(demo(tmp_path, "0" * 64, python="3.2"))


def test_names_are_of_declared_ones(declared: Toolchain) -> None:
    assert find_toolchain("demo") is declared
    with pytest.raises(UsageError):
        find_toolchain("rknn")


def test_releases_of_engines_are_toolchains_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip resolves what they need; nobody accepts terms. The install itself needs an index."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"onnxruntime==1\.17 could not be installed"):
        install_toolchain("onnxruntime==1.17", lambda toolchain: False)
    assert not list((tmp_path / "toolchains").glob("onnxruntime*"))
    folder = folder_of(release_toolchain("openvino==2024.0"))
    folder.mkdir(parents=True)
    assert [row["name"] for row in toolchain_rows() if "==" in row["name"]] == []
    record = {"lock": lock_digest(release_toolchain("openvino==2024.0"))}
    write_atomically(folder / RECORD, [strict_json.encode(record)], 0o600)
    assert [row["name"] for row in toolchain_rows() if "==" in row["name"]] == ["openvino==2024.0"]
    assert remove_toolchain("openvino==2024.0")["removed"]
    assert not folder.exists()
    for name in ("torch==2.0", "onnxruntime==", "onnxruntime==../..", "onnxruntime== 1.17; x"):
        with pytest.raises(UsageError, match="is not the release of an engine; give PACKAGE==VERSION"):
            install_toolchain(name, lambda toolchain: True)
