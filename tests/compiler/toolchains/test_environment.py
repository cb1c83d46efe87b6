"""Environment of a compiler, named by a variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.sandbox.limits import bounds_of, limits_of
from edgekit.compiler.toolchains.environment import Environment, environments_of, require, variable_of
from edgekit.errors import MissingDependency, UsageError

VARIABLE = variable_of("demo")


def required(version: str = "1.0") -> Environment:
    return require("demo", "demo-compiler", version, "compiling for CHIP", "make it, and set the variable")


def test_an_environment_is_named_by_a_variable(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(MissingDependency) as missing:
        required()
    assert str(missing.value) == (
        "demo-compiler 1.0 is not installed, and compiling for CHIP needs it: make it, and set the variable"
    )
    monkeypatch.setenv(VARIABLE, str(environment.python))
    assert required() == environment


def test_another_version_is_not_the_one_that_was_tested(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(environment.python))
    with pytest.raises(MissingDependency, match=f"^demo-compiler 2.0 .* {VARIABLE}, which has 1.0,"):
        required("2.0")
    with pytest.raises(MissingDependency, match="which has another package"):
        require("demo", "other-compiler", "1.0", "compiling", "make it")


@pytest.mark.parametrize("path", ["bin/python", "/nonexistent/python", "/", "/dev/null"])
def test_a_variable_that_names_no_program(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, path)
    with pytest.raises(UsageError, match=f"^{VARIABLE} is .*; set it to the full path of a Python"):
        required()


def test_a_build_may_read_the_environments_of_its_targets(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ["rk3588", "rk3566", "ort", "no-such-one"]
    options = {"model": tmp_path / "model.onnx", "targets": names}
    monkeypatch.delenv("EDGEKIT_RKNN_PYTHON", raising=False)
    before = limits_of("build", options)
    assert environments_of(names) == []
    monkeypatch.setenv("EDGEKIT_RKNN_PYTHON", str(environment.python))
    limits = limits_of("build", options)
    assert limits.memory_bytes >= before.memory_bytes
    assert str(environment.python.parents[1]) in bounds_of(limits, options, tmp_path).reads
