"""Positions of the weights in an ONNX file, for comparing two files tensor by tensor.

Only the wire format of protobuf is read (https://protobuf.dev/programming-guides/encoding): fields by their
numbers in onnx.proto. A file of another format gives no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

GRAPH, INITIALIZER, NAME, RAW_DATA = 7, 5, 8, 9
"""Fields: of ModelProto, of GraphProto, and two of TensorProto."""
LEAST_BYTES = 1024
"""Smaller tensors are not worth a block of their own."""


def tensors(content: bytes) -> dict[str, tuple[int, int]]:
    """Name -> offset and size of the raw data of each initializer of at least ``LEAST_BYTES``."""
    ranges: dict[str, tuple[int, int]] = {}
    try:
        for _, start, end in _fields(content, 0, len(content), GRAPH):
            for _, first, last in _fields(content, start, end, INITIALIZER):
                parts = {field: (pos, to) for field, pos, to in _fields(content, first, last, NAME, RAW_DATA)}
                if {NAME, RAW_DATA} <= parts.keys():
                    pos, to = parts[RAW_DATA]
                    if to - pos >= LEAST_BYTES:
                        ranges[content[slice(*parts[NAME])].decode("utf-8", "replace")] = (pos, to - pos)
    except (IndexError, ValueError):
        return {}
    return ranges


def _fields(content: bytes, offset: int, end: int, *numbers: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the length-delimited fields with these numbers in a message."""
    while offset < end:
        tag, offset = _varint(content, offset)
        kind = tag & 7
        if kind == 0:
            _, offset = _varint(content, offset)
        elif kind in (1, 5):
            offset += 8 if kind == 1 else 4
        elif kind == 2:
            size, offset = _varint(content, offset)
            if tag >> 3 in numbers:
                yield tag >> 3, offset, offset + size
            offset += size
        else:
            raise ValueError("it is not valid protobuf")
    if offset != end:
        raise ValueError("a field ends outside of its message")


def _varint(content: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[offset]
        value |= (byte & 127) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 128:
            return value, offset
        if shift > 63:
            raise ValueError("a number is too long")
