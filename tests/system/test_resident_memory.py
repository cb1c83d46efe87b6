"""Memory that is no longer used goes back to the system."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from edgekit.system.progress import stage
from edgekit.system.resident_memory import release_unused, resident_bytes

SIZE_BYTES = 64_000_000


def test_objects_that_hold_each_other_are_freed_when_a_stage_ends() -> None:
    """As nodes and values of a graph do, with all constants."""
    gc.disable()
    try:
        with stage(lambda progress: None, "compiled"):
            circle: list[object] = [np.ones(SIZE_BYTES, np.uint8)]
            circle.append(circle)
            del circle
            before = resident_bytes()
        assert before - resident_bytes() > SIZE_BYTES // 2
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' heaps are not trimmed")
def test_the_heap_s_free_pages_are_returned() -> None:
    """Holes between blocks that are in use, where the heap does not shrink by itself."""
    blocks = [bytearray(b"x") * 100_000 for _ in range(SIZE_BYTES // 100_000)]
    kept = blocks[::10]
    blocks.clear()
    before = resident_bytes()
    release_unused()
    assert before - resident_bytes() > SIZE_BYTES // 2
    assert kept
