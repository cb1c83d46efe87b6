"""Fixtures of all tests of the page: its engines, fetched once for each process that tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import ToolchainError
from edgekit.web import engine
from tests.fixtures.command_line import call as call


def _package(target: str, factory: pytest.TempPathFactory) -> Path:
    try:
        return engine.fetch(engine.read_lock(target), factory.mktemp("npm"))
    except ToolchainError as problem:
        pytest.skip(str(problem).splitlines()[0])


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package file of onnxruntime-web; tests that use it are marked needs_npm."""
    return _package("ort", tmp_path_factory)


@pytest.fixture(scope="session")
def litert_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package file of LiteRT.js; tests that use it are marked needs_npm."""
    return _package("tflite", tmp_path_factory)
