"""Fixtures of all tests of the page: its engines, fetched once for each process that tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import ToolchainError
from edgekit.web import engine
from edgekit.web.folder import write_web
from tests.fixtures.command_line import call as call
from tests.native.models import colours_bundle
from tests.report.browser import browser
from tests.web.host import Host, hosted


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


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    """A browser without a window."""
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(npm_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host") / "site"
    write_web(colours_bundle(), folder, [npm_package])
    with hosted(folder) as host:
        yield host
