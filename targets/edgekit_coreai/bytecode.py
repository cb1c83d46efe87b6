"""Make MLIR bytecode the same in every process.

Core AI names the weights in ``main.mlirb`` by a hash that each process seeds anew. Only the string section
holds these names:

    resource_5768467763020611406, resource_549412149714418614, ...  ->  resource_0, resource_1, ...

Format: https://mlir.llvm.org/docs/BytecodeFormat/
"""

from __future__ import annotations

import re

from edgekit_coreai.run import MLIR

STRING_SECTION = 0
HAS_ALIGNMENT = 0x80
RESOURCE = re.compile(rb"resource_\d+")


def with_numbered_resources(content: bytes) -> bytes:
    """Return the bytecode with its resources named by their order.

    Raises:
        ValueError: it is not MLIR bytecode of the known form.
    """
    if not content.startswith(MLIR):
        raise ValueError("it does not start as MLIR bytecode")
    _, place = _read_varint(content, len(MLIR))
    place = content.index(b"\0", place) + 1
    written = [content[:place]]
    while place < len(content):
        start, kind = place, content[place]
        length, place = _read_varint(content, place + 1)
        if kind & HAS_ALIGNMENT:
            alignment, place = _read_varint(content, place)
            place = -(-place // alignment) * alignment
        end = place + length
        if end > len(content):
            raise ValueError("a section is longer than the file")
        if kind == STRING_SECTION:
            section = _renamed(content[place:end])
            written.append(bytes([kind]) + _varint(len(section)) + section)
            if any(content[offset] & HAS_ALIGNMENT for offset in _sections_after(content, end)):
                raise ValueError("a section behind the strings is aligned")
        else:
            written.append(content[start:end])
        place = end
    return b"".join(written)


def _sections_after(content: bytes, place: int) -> list[int]:
    """Return where the sections from ``place`` on start, up to the first aligned one."""
    starts = []
    while place < len(content):
        starts.append(place)
        if content[place] & HAS_ALIGNMENT:
            break
        length, place = _read_varint(content, place + 1)
        place += length
    return starts


def _renamed(section: bytes) -> bytes:
    """Return the string section with numbered resources: a count, the lengths from the last to the first
    with their terminating zeros, the strings."""
    count, place = _read_varint(section, 0)
    for _ in range(count):
        _, place = _read_varint(section, place)
    strings = section[place:].split(b"\0")[:-1]
    if len(strings) != count:
        raise ValueError("a string contains a zero")
    number = 0
    for index, string in enumerate(strings):
        if RESOURCE.fullmatch(string):
            strings[index] = b"resource_%d" % number
            number += 1
    lengths = b"".join(_varint(len(string) + 1) for string in reversed(strings))
    return _varint(count) + lengths + b"".join(string + b"\0" for string in strings)


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place behind it; the trailing zeros of its first byte count further bytes."""
    first = content[place]
    more = 8 if first == 0 else (first & -first).bit_length() - 1
    end = place + 1 + more
    number = int.from_bytes(content[place:end], "little")
    return (number >> 8 if more == 8 else number >> (more + 1)), end


def _varint(number: int) -> bytes:
    for more in range(8):
        if number < 1 << (7 * (more + 1)):
            return (((number << 1) | 1) << more).to_bytes(more + 1, "little")
    return b"\0" + number.to_bytes(8, "little")
