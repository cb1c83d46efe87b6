"""Fixtures of all tests of the page: onnxruntime-web, fetched once for each process that tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import ToolchainError
from edgekit.web import engine
from tests.fixtures.command_line import call as call


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package file of onnxruntime-web; tests that use it are marked needs_npm."""
    try:
        return engine._fetched(engine.read_lock(), tmp_path_factory.mktemp("npm"))
    except ToolchainError as problem:
        pytest.skip(str(problem).splitlines()[0])
