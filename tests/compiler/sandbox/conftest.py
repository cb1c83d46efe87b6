from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from edgekit.compiler.sandbox.public import TRUSTED
from tests.cli.conftest import call
from tests.compiler.sandbox.new_children import EARLIER
from tests.fixtures import child_processes

__all__ = ["call", "contained"]


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it; the other tests run in one process."""
    monkeypatch.delenv(TRUSTED, raising=False)


@pytest.fixture(autouse=True)
def earlier() -> None:
    EARLIER.clear()
    EARLIER.update(child_processes.children())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
