"""Bundles that the tests of this folder serve; nothing writes into their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.classifiers import classifiers


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small and a large classifier of the same pictures, with their models beside them."""
    return classifiers(tmp_path_factory.mktemp("classifiers"))


@pytest.fixture(scope="session")
def bundle(bundles: tuple[Path, Path]) -> Path:
    """The small one."""
    return bundles[0]
