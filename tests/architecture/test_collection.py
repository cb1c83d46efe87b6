"""Each file of tests is in a folder that pytest enters."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_of_tests_is_entered(pytestconfig: pytest.Config) -> None:
    """pytest skips folders called ``build`` or ``dist``, among others."""
    patterns = pytestconfig.getini("norecursedirs")
    files = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
    skipped = {
        str(path.parent)
        for path in files
        if any(fnmatch(folder, pattern) for folder in path.parent.parts for pattern in patterns)
    }
    assert skipped == set()
