"""A store is killed, damaged and filled in memory: tested is the order of its steps, not the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(memory_folders: Iterator[Path]) -> Path:
    """A new empty folder in memory."""
    folder = next(memory_folders)
    folder.mkdir()
    return folder
