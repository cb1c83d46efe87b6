"""The lists of slow tests name tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow_tests import ONE_OF, SLOW

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", [*SLOW, *ONE_OF])
def test_it_is_there(name: str) -> None:
    path, *parts = name.partition("[")[0].split("::")
    text = (ROOT / path).read_text("utf-8")
    assert all(f"def {part}(" in text or f"class {part}:" in text for part in parts)
