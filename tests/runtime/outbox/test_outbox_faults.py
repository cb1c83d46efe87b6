"""kill -9, full disks and I/O errors; tests/benchmarks/bench_outbox_faults.py does the same at every call."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.runtime.outbox.outbox_faults import Trial, at_every_call, at_random

needs_kill = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@needs_kill
def test_random_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    trial = at_random(tmp_path, kills=5, seed=1)
    assert trial.outcomes["killed"] == 5
    assert trial.acknowledged


@needs_strace
@pytest.mark.parametrize(
    ("effect", "call", "numbers"),
    [
        ("signal=KILL", "fdatasync", (2, 5)),
        ("signal=KILL", "pwrite64", (4, 11)),
        ("error=ENOSPC", "pwrite64", (5,)),
        ("error=EIO", "fdatasync", (3,)),
    ],
)
def test_some_system_calls(tmp_path: Path, effect: str, call: str, numbers: tuple[int, ...]) -> None:
    outcomes = at_every_call(tmp_path, effect, [call], numbers)
    assert outcomes["hit"] >= len(numbers)


@needs_strace
def test_a_disk_that_stays_full_crashes_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.run(rows=2)
    stored = len(trial.acknowledged)
    assert stored == 2
    trial.run("pwrite64:error=ENOSPC:when=1+", rows=2, wait_s=0.2)
    assert len(trial.acknowledged) == stored  # nothing was promised
    trial.check()
    trial.run(rows=2)
    assert len(trial.acknowledged) == stored + 2
    trial.check()
