"""Builds write their records in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.errors import MissingDependency
from edgekit.target import registry
from tests.fixtures.command_line import call

__all__ = ["call"]


@pytest.fixture(scope="session")
def caches(memory_folders: Iterator[Path]) -> Iterator[Path]:
    """Caches in memory: builds and sessions flush thousands of small files."""
    return memory_folders


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No target's engine is installed."""

    class Missing:
        def engine_version(self) -> str:
            raise MissingDependency("onnxruntime", "running", "pip install 'edgekit-sdk[ort]'")

    monkeypatch.setattr(registry, "engine", lambda name: Missing())
