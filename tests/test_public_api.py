"""The public names are there, sorted, and loaded only when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import edgekit
from edgekit.errors import MissingDependency, install_line


def test_names_are_sorted() -> None:
    assert edgekit.__all__ == ["__version__", *sorted(set(edgekit.__all__) - {"__version__"})]


@pytest.mark.parametrize("name", edgekit.__all__)
def test_name_loads_and_is_documented(name: str) -> None:
    thing = getattr(edgekit, name)
    assert name == "__version__" or (thing.__doc__ or "").strip()


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'edgekit' has no attribute 'nothing'"):
        _ = edgekit.nothing


@pytest.mark.parametrize(
    ("module", "package"), [("onnx", "onnx"), ("onnx_ir", "onnx-ir"), ("onnxruntime", "onnxruntime")]
)
@pytest.mark.parametrize(
    ("name", "doing"),
    [("build", "building a model"), ("check", "checking a model"), ("open_model", "opening a model")],
)
def test_host_side_names_what_to_install(
    name: str, doing: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(MissingDependency) as error:
        getattr(edgekit, name)
    text = f"{package} is not installed, and {doing} needs it: {install_line('build')}"
    assert str(error.value) == text


def test_import_loads_no_dependency() -> None:
    script = "import sys, edgekit; print(*sorted(m for m in sys.modules if m in {'numpy', 'onnx', 'click'}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
