"""Protobuf's wire format: fields by number. Bounded by the buffer, so that a damaged file is an error."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from edgekit.errors import EngineError

Field = int | bytes
"""A varint or fixed number as it is stored, or the bytes of a length-delimited field."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(buffer: bytes) -> Iterator[tuple[int, Field]]:
    """(field number, content) in the order they are stored.

    >>> list(fields(bytes([0x08, 0x96, 0x01])))
    [(1, 150)]

    Raises:
        EngineError: a field reaches beyond the buffer, or is of an unknown wire type.
    """
    pos, end = 0, len(buffer)
    while pos < end:
        key, pos = varint(buffer, pos)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, pos = varint(buffer, pos)
            yield number, value
            continue
        if kind == BYTES:
            size, pos = varint(buffer, pos)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise EngineError(f"the specification is damaged: wire type {kind} at byte {pos}")
        if pos + size > end:
            raise EngineError(f"the specification is damaged: a field of {size} bytes at byte {pos} of {end}")
        content = buffer[pos : pos + size]
        pos += size
        if kind == BYTES:
            yield number, content
        else:
            yield number, int.from_bytes(content, "little")


def varint(buffer: bytes, offset: int) -> tuple[int, int]:
    """Return a variable-length number at ``offset``, and the offset of the next field."""
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(buffer):
            break
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), offset
    raise EngineError(f"the specification is damaged: a number without an end at byte {offset}")


def grouped(buffer: bytes) -> dict[int, list[Field]]:
    """Return the contents of each field number, in order."""
    groups: dict[int, list[Field]] = {}
    for number, content in fields(buffer):
        groups.setdefault(number, []).append(content)
    return groups


def signed(value: int) -> int:
    """Return a varint as the signed 64-bit number that it encodes."""
    return value - 2**64 if value >= 2**63 else value


def varints(contents: list[Field]) -> list[int]:
    """Return a repeated number, packed or not."""
    numbers = []
    for content in contents:
        if isinstance(content, int):
            numbers.append(signed(content))
            continue
        pos = 0
        while pos < len(content):
            value, pos = varint(content, pos)
            numbers.append(signed(value))
    return numbers


def floats(contents: list[Field]) -> list[float]:
    """Return a repeated float, packed or not."""
    numbers: list[float] = []
    for content in contents:
        raw = content.to_bytes(4, "little") if isinstance(content, int) else content
        numbers += struct.unpack(f"<{len(raw) // 4}f", raw[: len(raw) // 4 * 4])
    return numbers


def text(content: Field) -> str:
    """Return a string field."""
    return _bytes(content).decode("utf-8", "replace")


def _bytes(content: Field) -> bytes:
    if isinstance(content, int):
        raise EngineError("the specification is damaged: a number where bytes are expected")
    return content


def message(content: Field) -> dict[int, list[Field]]:
    """Return a nested message."""
    return grouped(_bytes(content))


def mapping(contents: list[Field]) -> dict[str, Field]:
    """Return a map field with string keys: key -> the value's content."""
    entries: dict[str, Field] = {}
    for content in contents:
        entry = message(content)
        entries[text(entry[1][-1]) if 1 in entry else ""] = entry[2][-1] if 2 in entry else b""
    return entries
