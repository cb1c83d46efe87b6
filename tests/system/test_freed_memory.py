"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from edgekit.system.freed_memory import return_freed_memory
from edgekit.system.resident_memory import resident_bytes
if not return_freed_memory():
    raise SystemExit(3)
bytearray(b"x" * (30 << 20))  # glibc takes blocks of this size from its heap after one of them was freed
large = [bytearray(b"x" * (20 << 20)) for _ in range(5)]
small = [bytearray(b"x" * 3000) for _ in range(100)]
before = resident_bytes()
del large
print(before - resident_bytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's mallopt")
def test_large_blocks_go_back_though_small_ones_lie_above_them() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    if ran.returncode == 3:
        pytest.skip("the C library is not glibc")
    assert int(ran.stdout) > 95 << 20, ran.stderr
