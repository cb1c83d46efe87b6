"""kill -9 and full disks; tests/benchmarks/bench_update_faults.py does the same at every call."""

from __future__ import annotations

import shutil

import pytest

from tests.release.updates.conftest import World
from tests.release.updates.update_faults import at_every_call

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@needs_strace
@pytest.mark.parametrize(
    ("effect", "call", "numbers"),
    [
        ("signal=KILL", "rename", (5, 8, 10)),
        ("signal=KILL", "fsync", (2,)),
        ("error=ENOSPC", "write", (2,)),
        ("error=EIO", "fsync", (3,)),
    ],
)
def test_some_system_calls(world: World, effect: str, call: str, numbers: tuple[int, ...]) -> None:
    assert at_every_call(world, effect, [call], numbers)["hit"] == len(numbers)
