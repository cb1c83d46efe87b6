"""Tables of a flatbuffer as objects, written and read by the schema's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flatbuffers
import numpy as np
from flatbuffers import number_types

from edgekit.tensor_spec import Content
from edgekit_tflite.schema import FIELDS, NUMBERS
from edgekit_tflite.tables import DamagedFileError, Table, root_table

FORMS: Mapping[str, str] = {
    "bool": "?", "int8": "b", "uint8": "B", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "uint64": "Q", "float32": "f",
}  # fmt: skip
"""Type of a number -> its form in ``struct``."""
_DEFAULTS = {table: {field.name: field.default for field in fields} for table, fields in FIELDS.items()}
_FLAGS = {kind: getattr(number_types, f"{kind.capitalize()}Flags") for kind in FORMS}


class Record:
    """Table of a flatbuffer: its fields are attributes, the schema's defaults until they are set.

    Vectors of numbers are arrays, texts that were read are bytes; None is a field that the table omits.
    """

    def __init__(self, table: str, **fields: Any) -> None:
        attributes = self.__dict__ = {"_table": table, **_DEFAULTS[table]}
        unknown = fields.keys() - attributes
        if unknown:
            raise ValueError(f"{table} has no field {min(unknown)}")
        attributes.update(fields)

    def fields(self) -> dict[str, Any]:
        """Return the values of all fields by their names."""
        return {field.name: getattr(self, field.name) for field in FIELDS[vars(self)["_table"]]}


def packed(root: Record, identifier: bytes, room_bytes: int = 1024) -> bytes:
    """Serialize a table and all that it holds.

    Args:
        identifier: Four bytes that name the kind of file.
    """
    builder = flatbuffers.Builder(room_bytes)
    builder.Finish(_written(builder, root), identifier)
    return bytes(builder.Output())


def unpacked(data: Content, table: str) -> Record:
    """Read the table that a flatbuffer begins with; vectors of numbers are views of ``data``.

    Raises:
        DamagedFileError: an offset leads outside the data.
    """
    return read(root_table(memoryview(data), f"the {table}"), table)


def read(table: Table, name: str) -> Record:
    """Read all of a table that has this name in the schema.

    Raises:
        DamagedFileError: an offset leads outside the data.
    """
    record = Record(name)
    for slot, field, kind, _ in FIELDS[name]:
        if table.place(slot) is not None:
            if kind in NUMBERS:
                kind = _member(kind, getattr(record, f"{field}Type"), table.description)
            setattr(record, field, _value(table, slot, kind, f"{field} of {table.description}"))
    return record


def _member(union: str, number: int, description: str) -> str:
    names = list(NUMBERS[union])
    if not 0 < number < len(names):
        raise DamagedFileError(f"{description} has a table of an unknown kind, {union} {number}")
    return names[number]


def _value(table: Table, slot: int, kind: str, description: str) -> Any:
    if kind in FORMS:
        return table.number(slot, FORMS[kind])
    if kind == "text":
        return bytes(table.content(slot))
    if kind[0] != "[":
        child = table.table(slot, description)
        return child and read(child, kind)
    item = kind[1:-1]
    if item in FORMS:
        return table.array(slot, item)
    return [read(entry, item) for entry in table.tables(slot, description)]


def _written(builder: Any, record: Record) -> int:
    """Write the table; return its position, counted from the end like the builder's offsets."""
    values = vars(record)
    fields = FIELDS[values["_table"]]
    present = []
    for slot, name, kind, default in fields:
        value = values[name]
        if kind in FORMS:
            if value != default:
                present.append((slot, _FLAGS[kind], value))
        elif value is not None:
            present.append((slot, None, _child(builder, value, kind)))
    builder.StartObject(fields[-1].slot + 1 if fields else 0)
    for slot, flags, value in present:
        if flags is None:
            builder.PrependUOffsetTRelative(value)
        else:
            builder.Prepend(flags, value)
        builder.Slot(slot)
    return int(builder.EndObject())


def _child(builder: Any, value: Any, kind: str) -> int:
    if isinstance(value, Record):
        return _written(builder, value)
    if kind == "text":
        return int(builder.CreateString(value))
    if kind[1:-1] in FORMS:
        return int(builder.CreateNumpyVector(np.asarray(value, kind[1:-1])))
    offsets = [_written(builder, entry) for entry in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
