"""Tables of an untrusted flatbuffer: no access leaves the file, and every count is checked before
use.

    table       int32 distance back to its vtable, then its fields
    vtable      uint16 sizes of itself and of the table, then each field's uint16 offset in it, 0: absent
    vector      uint32 count, then the elements; of tables or texts: uint32 distances, forward
    text        a vector of bytes

Distances to tables and vectors only go forward, so nothing contains itself.

Source: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

TEXT_LIMIT_BYTES = 4096
"""Longest name; many tables may share one long text, which would be decoded for each of them."""


class DamagedFileError(ModelError):
    """Error for a file whose contents are inconsistent."""


class Table:
    """Table of a flatbuffer.

    Raises:
        DamagedFileError: it does not lie within the data.
    """

    def __init__(self, data: memoryview, offset: int, description: str) -> None:
        self._data, self._offset, self.description = data, offset, description
        self._vtable = offset - self._number("<i", offset)
        self._vtable_bytes = self._number("<H", self._vtable)
        if self._vtable_bytes < 4 or self._vtable + self._vtable_bytes > len(data):
            raise self._damaged()

    def number(self, slot: int, form: str) -> Any:
        """Read a number in ``struct``'s form, e.g. ``i``; 0 if it is omitted."""
        pos = self.place(slot)
        return 0 if pos is None else self._number(f"<{form}", pos)

    def place(self, slot: int) -> int | None:
        """Return the offset of a field in bytes, or None if it is omitted."""
        entry = 4 + 2 * slot
        # Read when it is asked for: many tables may share one long vtable.
        offset = self._number("<H", self._vtable + entry) if entry + 2 <= self._vtable_bytes else 0
        return self._offset + offset if offset else None

    def table(self, slot: int, description: str) -> Table | None:
        """Return the table of a field, or None."""
        pos = self.place(slot)
        return None if pos is None else Table(self._data, self._forward(pos), description)

    def tables(self, slot: int, description: str, limit: float = math.inf) -> list[Table]:
        """Read a vector of tables; ``limit`` is the maximum number that is accepted."""
        start, count = self._vector(slot, 4)
        if count > limit:
            raise DamagedFileError(f"it claims {count} {description}s; at most {limit} are supported")
        starts = range(start, start + 4 * count, 4)
        return [Table(self._data, self._forward(pos), f"{description} {n}") for n, pos in enumerate(starts)]

    def array(self, slot: int, dtype: str) -> Array:
        """Return a vector of numbers, as a view of the file."""
        kind = np.dtype(dtype).newbyteorder("<")
        start, count = self._vector(slot, kind.itemsize)
        return np.frombuffer(self._data, kind, count, start)

    def content(self, slot: int) -> memoryview:
        """Return a vector of bytes, as a view of the file."""
        start, count = self._vector(slot, 1)
        return self._data[start : start + count]

    def text(self, slot: int) -> str:
        """Read a text, or "". Invalid UTF-8 is replaced."""
        return self._text(*self._vector(slot, 1))

    def texts(self, slot: int, limit: int) -> list[str]:
        """Read a vector of texts."""
        start, count = self._vector(slot, 4)
        if count > limit:
            raise DamagedFileError(f"{self.description} has {count} strings; at most {limit} are supported")
        starts = range(start, start + 4 * count, 4)
        return [self._text(*self._counted(self._forward(pos), 1)) for pos in starts]

    def _text(self, start: int, size: int) -> str:
        if size > TEXT_LIMIT_BYTES:
            raise DamagedFileError(
                f"{self.description} has a text of {size} bytes; at most {TEXT_LIMIT_BYTES} are supported"
            )
        return bytes(self._data[start : start + size]).decode("utf-8", "replace")

    def _vector(self, slot: int, item_bytes: int) -> tuple[int, int]:
        """Return the offset of a vector's first element in bytes, and the number of elements."""
        pos = self.place(slot)
        return (0, 0) if pos is None else self._counted(self._forward(pos), item_bytes)

    def _counted(self, offset: int, item_bytes: int) -> tuple[int, int]:
        count = self._number("<I", offset)
        if offset + 4 + count * item_bytes > len(self._data):
            raise self._damaged()
        return offset + 4, count

    def _forward(self, offset: int) -> int:
        distance = self._number("<I", offset)
        if distance == 0:
            raise self._damaged()
        return offset + int(distance)

    def _number(self, form: str, offset: int) -> Any:
        if offset < 0 or offset + struct.calcsize(form) > len(self._data):
            raise self._damaged()
        return struct.unpack_from(form, self._data, offset)[0]

    def _damaged(self) -> DamagedFileError:
        return DamagedFileError(
            f"{self.description} is outside the file, which has {len(self._data)} bytes: it is damaged"
        )


def root_table(data: memoryview, description: str) -> Table:
    """Return the root table of a flatbuffer.

    Raises:
        DamagedFileError: the data are too short for one.
    """
    if len(data) < 8:
        raise DamagedFileError(f"it has {len(data)} bytes, fewer than any flatbuffer")
    return Table(data, struct.unpack_from("<I", data)[0], description)
