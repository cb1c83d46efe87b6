"""Builds write their records in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def caches(memory_folders: Iterator[Path]) -> Iterator[Path]:
    """Caches in memory: builds and sessions flush thousands of small files."""
    return memory_folders
