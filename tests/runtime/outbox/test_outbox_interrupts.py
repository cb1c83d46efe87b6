"""Ctrl-C at random moments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RUN = "import sys; from pathlib import Path; from tests.runtime.outbox.outbox_interrupts import interrupted; "


@pytest.mark.skipif(sys.platform == "win32", reason="there is no timer that sends signals")
def test_nothing_stands_still_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """In a process of its own, which ends with where it stood when it does so for a minute."""
    done = subprocess.run(
        [sys.executable, "-c", f"{RUN}print(interrupted(Path(sys.argv[1]), 600, 1))", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "'put'" in done.stdout
