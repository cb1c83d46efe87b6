"""An .mlpackage as a program: manifest, protobuf specification and weight file, read by ourselves.

Field numbers: mlmodel/format/MIL.proto and Model.proto of apple/coremltools.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array

ML_PROGRAM = 502
DTYPES: Mapping[int, str] = {1: "bool", 10: "float16", 11: "float32", 12: "float64", 21: "int8", 22: "int16",
                             23: "int32", 24: "int64", 31: "uint8", 32: "uint16", 33: "uint32"}  # fmt: skip
"""MIL's DataType -> numpy name."""
NARROW: Mapping[int, tuple[int, bool]] = {25: (4, True), 35: (4, False), 36: (2, False), 37: (1, False),
                                          38: (6, False), 39: (3, False)}  # fmt: skip
"""MIL's DataType -> bits and whether it is signed, for what is packed."""
STRING = 2
BLOB_SENTINEL = 0xDEADBEEF
BLOB_HEADER = struct.Struct("<IIQQ")
"""sentinel, data type, size in bytes, offset of the data: MILBlob's metadata, at a multiple of 64 bytes."""
ELEMENTS_LIMIT = 1 << 33
Field = int | bytes
"""A varint or fixed number as it is stored, or the bytes of a length-delimited field."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Type:
    """Declared type of a tensor. ``dtype`` is a numpy name, "string", or "other" if not a tensor; narrow
    integers are held in int8. ``is_state``: its content persists from run to run."""

    dtype: str
    shape: tuple[int, ...]
    is_state: bool = False


@dataclass(frozen=True)
class Name:
    """Operand produced by an earlier operator, or an input."""

    name: str


Operand: TypeAlias = "Name | Array | str | bool"
"""A name, or a literal."""


@dataclass(frozen=True)
class Op:
    """Operator: its type, operands (lists if it takes several for one parameter) and outputs."""

    type: str
    operands: Mapping[str, list[Operand]]
    attributes: Mapping[str, Any]
    outputs: tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class MilProgram:
    """A function: inputs, operators in order, names of the outputs."""

    ios: str
    inputs: Mapping[str, Type]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]


def read_package(specification: Path, weights: Path | None, function: str = "main") -> MilProgram:
    """Read a function of an .mlpackage.

    Args:
        specification: ``Data/com.apple.CoreML/model.mlmodel``.
        weights: ``Data/com.apple.CoreML/weights/weight.bin``; None if the package has none.

    Raises:
        EngineError: a file is damaged, or not a program with this function.
    """
    try:
        blob = np.memmap(weights, np.uint8, "r") if weights is not None else np.zeros(0, np.uint8)
        return _MessageReader(blob).program(specification.read_bytes(), function)
    except (KeyError, IndexError, struct.error, UnicodeDecodeError, ValueError, RecursionError) as problem:
        raise EngineError(f"{specification} is damaged: {type(problem).__name__} {problem}") from None
    except OSError as problem:
        raise EngineError(f"{specification} can't be read: {problem.strerror or problem}") from None


def find_in_package(manifest: Path) -> tuple[Path, Path | None]:
    """Return the paths of an .mlpackage's specification and weights, from its manifest."""
    try:
        table = json.loads(manifest.read_text("utf-8"))
        items, root = table["itemInfoEntries"], table["rootModelIdentifier"]
        folder = manifest.parent / "Data"
        specification = folder / items[root]["path"]
        weights = next(
            (folder / i["path"] / "weight.bin" for i in items.values() if i["name"] == "weights"), None
        )
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise EngineError(f"{manifest} is not the manifest of an .mlpackage: {problem}") from None
    return specification, weights


class _MessageReader:
    def __init__(self, blob: Array) -> None:
        self._blob = blob

    def program(self, content: bytes, name: str) -> MilProgram:
        model = message(content)
        if ML_PROGRAM not in model:
            raise EngineError("the specification holds no ML program")
        functions = mapping(message(model[ML_PROGRAM][-1])[2])
        function = message(functions[name])
        opset = text(function[2][-1])
        block = message(mapping(function[3])[opset])
        inputs = dict(self._named(content) for content in function.get(1, []))
        ops = tuple(self._op(content) for content in block.get(3, []))
        return MilProgram(opset, inputs, ops, tuple(text(name) for name in block.get(2, [])))

    def _named(self, content: Field) -> tuple[str, Type]:
        entry = message(content)
        return text(entry[1][-1]), _type(entry[2][-1])

    def _op(self, content: Field) -> Op:
        entry = message(content)
        operands = {
            key: [self._binding(binding) for binding in message(argument).get(1, [])]
            for key, argument in mapping(entry.get(2, [])).items()
        }
        attributes = {
            key: self._value(value) for key, value in mapping(entry.get(5, [])).items() if key != "name"
        }
        outputs = tuple(self._named(output) for output in entry.get(3, []))
        return Op(text(entry[1][-1]), operands, attributes, outputs)

    def _binding(self, content: Field) -> Operand:
        entry = message(content)
        return Name(text(entry[1][-1])) if 1 in entry else self._value(entry[2][-1])

    def _value(self, content: Field) -> Any:
        entry = message(content)
        declared, code = _type(entry[2][-1]), _data_type(entry[2][-1])
        size = prod(declared.shape)
        if size > ELEMENTS_LIMIT:
            raise EngineError(f"a constant of {size} elements")
        if 5 in entry:
            raw = self._weights(int(varints(message(entry[5][-1])[2])[0]))
            if code in NARROW:
                return _unpacked(raw, *NARROW[code], size).reshape(declared.shape)
            return np.frombuffer(raw, declared.dtype)[:size].reshape(declared.shape)
        literal = message(entry[3][-1])
        if 3 in literal:
            return [self._value(one) for one in message(literal[3][-1]).get(1, [])]
        tensor = message(literal[1][-1])
        (number, contents), *_ = tensor.items()
        values = message(contents[-1]).get(1, [])
        if code == STRING:
            return text(values[-1]) if values else ""
        if number == 7:
            raw = values[-1] if values and isinstance(values[-1], bytes) else b""
            if code in NARROW:
                return _unpacked(raw, *NARROW[code], size).reshape(declared.shape)
            return np.frombuffer(raw, declared.dtype).reshape(declared.shape)
        numbers = floats(values) if number == 1 else varints(values)
        return np.array(numbers, declared.dtype).reshape(declared.shape)

    def _weights(self, offset: int) -> bytes:
        header = self._blob[offset : offset + BLOB_HEADER.size].tobytes()
        sentinel, _, size, start = BLOB_HEADER.unpack(header)
        if sentinel != BLOB_SENTINEL or start + size > len(self._blob):
            raise EngineError(f"the weight file is damaged: no entry at byte {offset}")
        return self._blob[start : start + size].tobytes()


def _data_type(content: Field) -> int:
    entry = message(content)
    return varints(message(entry[1][-1]).get(1, [0]))[0] if 1 in entry else 0


def _type(content: Field) -> Type:
    entry = message(content)
    if 5 in entry:
        wrapped = _type(message(entry[5][-1])[1][-1])
        return Type(wrapped.dtype, wrapped.shape, is_state=True)
    if 1 not in entry:
        return Type("other", ())
    tensor = message(entry[1][-1])
    code = varints(tensor.get(1, [0]))[0]
    shape = []
    for dimension in tensor.get(3, []):
        constant = message(dimension).get(1)
        if constant is None:
            raise EngineError("a dimension is not constant; the reference executor runs static shapes")
        sizes = message(constant[-1]).get(1, [0])
        shape.append(varints(sizes)[0])
    if code in NARROW:
        return Type("int8" if NARROW[code][1] else "uint8", tuple(shape))
    return Type("string" if code == STRING else DTYPES[code], tuple(shape))


def _unpacked(raw: bytes, bits: int, is_signed: bool, count: int) -> Array:
    """Unpack integers, least significant bits first."""
    flat = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[: count * bits]
    values = (flat.reshape(count, bits) * (1 << np.arange(bits))).sum(1).astype(np.int16)
    if is_signed:
        values = np.where(values >= 1 << (bits - 1), values - (1 << bits), values)
    narrow: Array = values.astype(np.int8 if is_signed else np.uint8)
    return narrow


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
