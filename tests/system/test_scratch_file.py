"""Arrays on pages of temporary files: same values, not on the heap, and no space after the last one."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.system.scratch_file import PART_BYTES, SEGMENT_BYTES, ScratchFile, is_on_file, mapped
from tests.fixtures.child_processes import run_python

HEAP = """
import numpy as np
from edgekit.system.scratch_file import ScratchFile
def own():
    resident, files = open("/proc/self/statm").read().split()[1:3]
    return (int(resident) - int(files)) * 4096
scratch, before = ScratchFile(), own()
kept = [scratch.keep(np.full(1 << 22, number, np.float32)) for number in range(10)]
print(own() - before, sum(float(array[-1]) for array in kept))
"""


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        np.arange(24, dtype=np.int64).reshape(4, 6).T,
        np.arange(10, dtype=np.uint8)[::-3],
        np.array(2.5, np.float16),
        np.array([True, False]),
        np.zeros((0, 3), np.int8),
    ],
)
def test_a_kept_array_has_the_same_values(array: np.ndarray) -> None:
    kept = ScratchFile().keep(array)
    assert (kept.dtype, kept.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(kept, array)
    assert is_on_file(kept) == bool(array.nbytes)
    assert not is_on_file(array)


def test_arrays_do_not_overwrite_each_other() -> None:
    """More than a file of them, one larger than a file, and one that is written in several parts."""
    scratch = ScratchFile()
    sizes = [3, SEGMENT_BYTES // 2, SEGMENT_BYTES // 2, 7, SEGMENT_BYTES + 1, PART_BYTES + 5, 11]
    kept = [scratch.keep(np.full((size, 1), number, np.uint8)) for number, size in enumerate(sizes)]
    for number, (array, size) in enumerate(zip(kept, sizes, strict=True)):
        assert array.shape == (size, 1)
        assert (array == number).all()


def test_a_kept_array_is_read_only_and_kept_once() -> None:
    scratch = ScratchFile()
    kept = scratch.keep(np.arange(6).reshape(2, 3))
    with pytest.raises(ValueError, match="read-only"):
        kept[0, 0] = 1
    assert scratch.keep(kept) is kept
    turned = scratch.keep(kept.T)
    assert turned.flags.c_contiguous
    np.testing.assert_array_equal(turned, kept.T)


@pytest.mark.skipif(sys.platform != "linux", reason="the heap is read from /proc")
def test_kept_arrays_are_not_on_the_heap() -> None:
    """168 MB of arrays, one of which is on the heap at a time."""
    grown, total = run_python(HEAP, check=True).stdout.split()
    assert float(total) == sum(range(10))
    assert int(grown) < 60e6


@pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")
def test_space_is_freed_with_the_last_array() -> None:
    def files() -> int:
        count = 0
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the list itself was one
                link = os.readlink(f"/proc/self/fd/{number}")
                count += link.startswith(tempfile.gettempdir()) and link.endswith("(deleted)")
        return count

    before, scratch = files(), ScratchFile()
    kept = scratch.keep(np.ones(1000))
    assert files() > before
    del scratch
    assert kept.sum() == 1000
    del kept
    assert files() == before


def test_a_mapped_file_outlives_its_name(tmp_path: Path) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        content = mapped(file)
    if sys.platform != "win32":
        path.unlink()
    assert bytes(content) == b"abc"
    assert hash(content) == hash(b"abc")  # equal contents are stored once
    with pytest.raises(TypeError, match="read-only"):
        content[0] = 1
