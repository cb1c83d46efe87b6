"""The short form of ``python -m tests.native.mutations``."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tests.native.library import link_program
from tests.native.mutations import run_cases

pytestmark = pytest.mark.needs_compiler
CASES = 400


def test_mutated_bundles_end_as_in_python(tmp_path: Path) -> None:
    """Without sanitizers, which take the compiler half a minute."""
    program = link_program(Path(__file__).with_name("read_bundles.cpp"), tmp_path / "read_bundles")
    counts: collections.Counter[str] = collections.Counter()
    assert list(run_cases(program, tmp_path, range(CASES), counts)) == []
    assert counts["open refused with the same text"] > CASES // 4
    assert counts["prepare done"] > CASES // 10
    assert counts["verify refused with the same text"] > CASES // 50
