"""Assembly of the tables and weights of a .tflite file into one file.

    tables      a flatbuffer whose Buffer tables have no content yet
    weights     in sequence after it, each at a multiple of 64 bytes and written one at a time: at most one
                of them is held in addition to the file, and a large file is not on the heap

A number in a Buffer's table, filled in last, is its content's position. Up to 2 GB it is the flatbuffer's own
offset to a vector, which every runtime reads; beyond, offsets of flatbuffers end, and it is the schema's
``offset`` and ``size`` from the beginning of the file, which old runtimes do not know.
"""

from __future__ import annotations

import io
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.system.scratch_file import mapped
from edgekit.tensor_spec import Array, Content
from edgekit_tflite.records import Record
from edgekit_tflite.tables import root_table

IDENTIFIER = b"TFL3"
INSIDE_LIMIT_BYTES = 2**31 - 1
"""Size of a flatbuffer, by its documentation: what is larger is written with contents outside of it."""
ALIGNMENT_BYTES = 64
"""What TFLite aligns its own tensors to (kDefaultTensorAlignment): a runtime that maps the file reads weights
in place."""
MAPPED_BYTES = 32 << 20
"""Size from which a file is written to disk and mapped."""
TABLES_BYTES = 1 << 20
"""Room that the builder of the tables begins with; it doubles itself."""
MODEL_BUFFERS = 4
DATA, OFFSET, SIZE = 0, 1, 2
"""Slots of a Buffer."""


def is_outside(contents: Sequence[Array]) -> bool:
    """Check whether the contents are too large for a flatbuffer."""
    size = sum(array.nbytes + ALIGNMENT_BYTES for array in contents)
    return size + TABLES_BYTES > INSIDE_LIMIT_BYTES


def empty_buffer(outside: bool) -> Record:
    """Return a Buffer with room for the position of its content."""
    if outside:
        return Record("Buffer", offset=1, size=1)  # 0, the default, is not written
    return Record("Buffer", data=np.zeros(0, np.uint8))


def assembled(tables: bytes, contents: Sequence[Array]) -> Content:
    """Assemble the file; one of MAPPED_BYTES or more is returned on pages of a temporary file.

    Args:
        tables: A packed model whose buffers, from the second on, are ``empty_buffer`` s.
        contents: Contents of these buffers, in order, with any strides.
    """
    outside = is_outside(contents)
    starts, end = [], len(tables)
    for array in contents:
        # A vector begins with its length; what is aligned is its content.
        starts.append(-(-(end + 4) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
        end = starts[-1] + array.nbytes
    head = bytearray(tables)
    buffers: Any = root_table(memoryview(tables), "the model").tables(MODEL_BUFFERS, "buffer")
    for buffer, array, start in zip(buffers[1:], contents, starts, strict=False):
        if outside:
            struct.pack_into("<Q", head, buffer.place(OFFSET), start)
            struct.pack_into("<Q", head, buffer.place(SIZE), array.nbytes)
        else:
            field = buffer.place(DATA)
            struct.pack_into("<I", head, field, start - 4 - field)
    with tempfile.TemporaryFile() if end >= MAPPED_BYTES else io.BytesIO() as file:
        file.seek(max(end - 1, 0))
        file.write(b"\0")  # all the room at once
        file.seek(0)
        file.write(head)
        for array, start in zip(contents, starts, strict=True):
            file.seek(start - 4)
            if not outside:
                file.write(struct.pack("<I", array.nbytes))
            file.seek(start)
            file.write(_stored(array))
        # The memory that was written to, not a copy of it.
        return file.getvalue() if isinstance(file, io.BytesIO) else mapped(file)


def _stored(array: Array) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
