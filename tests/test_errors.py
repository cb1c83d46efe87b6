from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import errors
from edgekit.errors import MissingDependency, install_line, need_package, with_local_lines


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder "site packages", as if EdgeKit were installed there."""
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site packages" / "edgekit" / "errors.py"))
    (tmp_path / "site packages" / "edgekit_sdk-0.1.0.dist-info").mkdir(parents=True)
    return tmp_path / "site packages"


def test_an_installed_edgekit_is_named(installed: Path) -> None:
    assert install_line("tflite") == "pip install 'edgekit-sdk[tflite]'"


def test_a_source_tree_is_named_by_its_path(installed: Path) -> None:
    (installed / "setup.cfg").touch()
    assert install_line("tflite") == f"pip install -e '{installed}[tflite]'"


def test_a_copied_folder_is_installed_from_a_clone(installed: Path) -> None:
    (installed / "edgekit_sdk-0.1.0.dist-info").rmdir()
    assert install_line("tflite") == "pip install '.[tflite]' in a clone of EdgeKit"


def test_inside_a_zip_file(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "__file__", str(installed / "app.zip" / "edgekit" / "errors.py"))
    assert install_line("ort") == "pip install '.[ort]' in a clone of EdgeKit"


def test_lines_of_a_bundle_are_told_as_they_work_here(installed: Path) -> None:
    text = "a: pip install 'edgekit-sdk[ort]'\nb: (pip install 'edgekit-sdk[coreml-check]'); done"
    assert with_local_lines(text) == text
    (installed / "setup.cfg").touch()
    assert with_local_lines(text) == (
        f"a: pip install -e '{installed}[ort]'\nb: (pip install -e '{installed}[coreml-check]'); done"
    )
    for odd in (
        "pip install 'edgekit-sdk[",
        "pip install 'edgekit-sdk[$(rm)]'",
        "pip install 'edgekit-sdk[]'",
    ):
        assert with_local_lines(odd) == odd


def test_a_bundle_gets_no_path_of_the_machine_that_built_it(installed: Path) -> None:
    (installed / "setup.cfg").touch()
    error = MissingDependency("onnxruntime", "running", extra="ort")
    assert (
        str(error) == f"onnxruntime is not installed, and running needs it: pip install -e '{installed}[ort]'"
    )
    assert error.install == f"pip install -e '{installed}[ort]'"
    assert error.for_bundles == (
        "onnxruntime is not installed, and running needs it: pip install 'edgekit-sdk[ort]'"
    )


def test_a_line_of_its_own_is_kept() -> None:
    error = MissingDependency("tensorrt", "a test", "JetPack has it")
    assert str(error) == error.for_bundles == "tensorrt is not installed, and a test needs it: JetPack has it"


@pytest.mark.parametrize("name", [None, "vendor"])
def test_a_package_that_is_not_there_has_its_pip_line(name: str | None) -> None:
    with (
        pytest.raises(MissingDependency, match=r"^vendor-kit is not installed, .* needs it: get it$"),
        need_package("vendor-kit", "running", "get it", module="vendor"),
    ):
        raise ImportError("No module named 'vendor'", name=name)
    with (
        pytest.raises(MissingDependency, match=r"^tuf is not installed, and updates needs it: pip "),
        need_package("tuf", "updates", extra="update"),
    ):
        raise ImportError("cannot import", name="securesystemslib")


@pytest.mark.parametrize("name", ["vendor.core", "numpy"])
def test_what_a_damaged_package_lacks_is_told_as_it_is(name: str) -> None:
    with (
        pytest.raises(ImportError, match=r"^DLL load failed$"),
        need_package("vendor-kit", "running", "get it", module="vendor"),
    ):
        raise ImportError("DLL load failed", name=name)
