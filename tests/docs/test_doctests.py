"""Examples in docstrings give what they show.

pytest's own ``--doctest-modules`` is not used: it skips test files that can't be imported.
"""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"edgekit": ROOT, "targets": ROOT / "targets", "tests": ROOT}
"""Folder of modules -> the folder that their names begin at."""


def _modules() -> list[str]:
    return [
        ".".join(path.relative_to(top).with_suffix("").parts)
        for folder, top in FOLDERS.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(r"^\s*>>> ", path.read_text("utf-8"), re.MULTILINE)
    ]


@pytest.mark.parametrize("name", _modules())
def test_examples(name: str) -> None:
    try:
        module = import_module(name)
    except ModuleNotFoundError as absent:
        if (absent.name or "").startswith(("edgekit", "tests")):
            raise
        pytest.skip(f"{absent.name} is not installed")
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
