"""Ctrl-C at random moments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.child_processes import run_python

ROOT = Path(__file__).parents[3]
RUN = "import sys; from pathlib import Path; from tests.runtime.outbox.outbox_interrupts import interrupted; "


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer that sends signals")
def test_nothing_stands_still_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """In a process of its own, which ends with where it stood when it does so for a minute."""
    done = run_python(f"{RUN}print(interrupted(Path(sys.argv[1]), 600, 1))", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "'put'" in done.stdout
