"""The short form of ``python -m tests.native.adapters``."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tests.native.adapters import PROGRAM, libraries, run_cases
from tests.native.library import link_program

pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_ort, pytest.mark.slow]
CASES = 150


def test_adapters_survive_what_does_not_fit_the_bundle(tmp_path: Path) -> None:
    """Without sanitizers, and with OpenVINO too."""
    program = link_program(PROGRAM, tmp_path / "run_adapters")
    counts: collections.Counter[str] = collections.Counter()
    run_cases(program, tmp_path, range(CASES), counts, libraries())
    assert min(counts["ran"], counts["closed"]) > CASES // 20
