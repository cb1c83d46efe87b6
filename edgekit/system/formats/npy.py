"""Golden arrays as .npy 1.0: little-endian, C order, and never parsed more than they must be."""

from __future__ import annotations

import math
import struct

import numpy as np

from edgekit.tensor_spec import Array, TensorSpec

HEADER_LIMIT_BYTES = 4096
ALIGNMENT_BYTES = 64
_MAGIC = b"\x93NUMPY\x01\x00"


class NpyError(ValueError):
    """Bytes that are not the declared array."""


def npy_bytes(array: Array) -> bytes:
    """Return an array as .npy; the same bytes with any numpy (its own padding changed between versions).

    >>> npy_bytes(np.zeros((2,), np.float32))[10:].split(b"  ")[0]
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
    """
    text = _header(str(array.dtype), array.shape)
    padding = -(len(_MAGIC) + 2 + len(text) + 1) % ALIGNMENT_BYTES
    header = text + b" " * padding + b"\n"
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return _MAGIC + struct.pack("<H", len(header)) + header + data


def parse_npy(content: memoryview, spec: TensorSpec) -> Array:
    """Return the array, sharing the memory of ``content``.

    The header is not parsed: it must be, but for its padding, the text that ``spec`` gives. So no header can
    lie, and there can be no object array.

    Raises:
        NpyError: it is not a .npy file of this dtype and shape.
    """
    spec = _closed(content, spec)
    prefix = bytes(content[:10])
    if len(prefix) < 10 or prefix[:8] != _MAGIC:
        raise NpyError("it is not a .npy file of version 1.0")
    data_start = 10 + int(struct.unpack("<H", prefix[8:])[0])
    if data_start > HEADER_LIMIT_BYTES:
        raise NpyError(f"a .npy header of {data_start} bytes; the limit is {HEADER_LIMIT_BYTES}")
    if bytes(content[10:data_start]).rstrip(b" \n") != _header(spec.dtype, spec.shape):
        raise NpyError(f"its .npy header does not match {spec}")
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    count = math.prod(spec.shape)
    if len(content) - data_start != count * dtype.itemsize:
        raise NpyError(f"{len(content) - data_start} bytes of data where {spec} has {count * dtype.itemsize}")
    return np.frombuffer(content, dtype, count, data_start).reshape(spec.shape)


def _closed(content: memoryview, spec: TensorSpec) -> TensorSpec:
    """Return the spec with its open dimension, if there is one, set by the size of the content. The header
    must declare the same size."""
    if not spec.is_open or len(content) < 10:
        return spec
    data_bytes = len(content) - 10 - int(struct.unpack("<H", content[8:10])[0])
    row_bytes = abs(math.prod(spec.shape)) * np.dtype(spec.dtype).itemsize
    rows = max(data_bytes, 0) // max(row_bytes, 1)
    return spec._replace(shape=tuple(rows if d == -1 else d for d in spec.shape))


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    descr = np.dtype(dtype).newbyteorder("<").str
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("ascii")
