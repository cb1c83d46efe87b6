"""Large arrays and contents of a build on pages of temporary files, which the system drops and reads again.

The files are in the system's temporary folder (``TMPDIR``) without a name, so that nobody else can change
them, and their space is freed with the last array or content.
"""

from __future__ import annotations

import math
import mmap
import tempfile
from typing import IO

import numpy as np

from edgekit.tensor_spec import Array

SEGMENT_BYTES = 64 << 20
"""Size of a file that arrays share; a larger array has one of its own."""
PART_BYTES = 16 << 20
"""Size of what is written at one time."""
ALIGNMENT_BYTES = 64


class ScratchFile:
    """Arrays on pages of temporary files."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._pages: mmap.mmap | None = None
        self._size = self._end = 0

    def keep(self, array: Array) -> Array:
        """Store an array. Return it read-only, in C order, on pages of a file.

        Args:
            array: Any dtype but object, any shape and strides. One that is on such pages, in C order, is
                returned as it is.

        Raises:
            OSError: the temporary folder has no room.
        """
        if array.flags.c_contiguous and is_on_file(array):
            return array
        if not array.nbytes:
            return array
        file, pages = self._room(array.nbytes)
        file.seek(self._end)
        rows = array.reshape(1) if array.ndim == 0 else array
        step = max(1, PART_BYTES // max(1, rows.nbytes // len(rows)))
        for start in range(0, len(rows), step):
            file.write(np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8).data)
        file.flush()
        copy = np.frombuffer(pages, array.dtype, math.prod(array.shape), self._end).reshape(array.shape)
        self._end += array.nbytes + -array.nbytes % ALIGNMENT_BYTES
        return copy

    def _room(self, size: int) -> tuple[IO[bytes], mmap.mmap]:
        if self._file is None or self._pages is None or self._end + size > self._size:
            self._size, self._end = max(SEGMENT_BYTES, size), 0
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (its last array closes it)
            self._file.truncate(self._size)  # takes no space before it is written
            self._pages = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        return self._file, self._pages


def is_on_file(array: Array) -> bool:
    """Return whether an array's memory is pages of a file."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap) or (isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap))


def mapped(file: IO[bytes]) -> memoryview:
    """Return the content of an open file, which is not empty, read-only on its pages.

    The file may then be closed, and its name removed.
    """
    file.flush()
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
