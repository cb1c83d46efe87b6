"""The schema's text is the schema that the engine's wheel ships, and both write and read the same bytes."""

from __future__ import annotations

import inspect
import re
from typing import Any

import flatbuffers
import numpy as np
import pytest
from edgekit_tflite.assembly import IDENTIFIER
from edgekit_tflite.records import FORMS, Record, packed, unpacked
from edgekit_tflite.schema import FIELDS, NUMBERS
from edgekit_tflite.tables import DamagedFileError

OF_METADATA = {"ContentProperties", "ProcessUnitOptions"}
"""Enums of the other schema."""


@pytest.fixture(scope="module")
def litert() -> Any:
    """The code that flatc makes of the schema."""
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


def tables_of(schema: Any) -> list[str]:
    tables = [table for table in FIELDS if hasattr(schema, f"{table}T")]
    assert len(tables) > 140
    return tables


@pytest.mark.needs_tflite
@pytest.mark.parametrize("enum", sorted(NUMBERS.keys() - OF_METADATA))
def test_enums_are_those_of_the_wheel(enum: str, litert: Any) -> None:
    theirs = {k: v for k, v in vars(getattr(litert, enum)).items() if isinstance(v, int)}
    assert NUMBERS[enum].items() <= theirs.items()  # a newer wheel may have more


@pytest.mark.needs_tflite
def test_slots_types_and_defaults_are_those_of_the_wheel(litert: Any) -> None:
    for table in tables_of(litert):
        for slot, name, kind, default in FIELDS[table]:
            add = getattr(litert, f"{table}Add{name[0].upper()}{name[1:]}")
            written = re.search(r"Prepend(\w+)Slot\((\d+), .*, (\S+)\)", inspect.getsource(add))
            assert written is not None
            expected = (kind.capitalize(), slot, default) if kind in FORMS else ("UOffsetTRelative", slot, 0)
            assert (written[1], int(written[2]), float(written[3])) == expected, (table, name)
        left_out = vars(getattr(litert, f"{table}T")()).keys() - Record(table).fields().keys()
        assert left_out <= {"builtinOptions2Type", "builtinOptions2"}, table


def filled(table: str, rng: np.random.Generator, schema: Any) -> tuple[Record, Any]:
    """The same drawn content as a Record and as an object of the wheel's code."""
    own, other = Record(table), getattr(schema, f"{table}T")()
    for _, name, kind, _ in FIELDS[table]:
        if rng.random() < 0.3 or (f"{name[:-4]}" in vars(own) and name.endswith("Type")):
            continue  # left out, or set with its union
        values: tuple[Any, Any]
        if kind in FORMS:
            values = (int(rng.integers(2)),) * 2
        elif kind == "text":
            values = ("ü" * int(rng.integers(5)),) * 2
        elif kind[1:-1] in FORMS:
            values = (rng.integers(0, 2, int(rng.integers(4))).astype(kind[1:-1]),) * 2
        elif kind in NUMBERS:
            member = str(rng.choice([each for each in NUMBERS[kind] if hasattr(schema, f"{each}T")]))
            for target in (own, other):
                setattr(target, f"{name}Type", NUMBERS[kind][member])
            values = filled(member, rng, schema)
        elif kind[0] == "[":
            pairs = [filled(kind[1:-1], rng, schema) for _ in range(int(rng.integers(4)))]
            values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            values = filled(kind, rng, schema)
        setattr(own, name, values[0])
        setattr(other, name, values[1])
    return own, other


@pytest.mark.needs_tflite
def test_every_table_is_written_and_read_as_the_wheel_does_it(litert: Any) -> None:
    rng = np.random.default_rng(0)
    for table in tables_of(litert):
        for _ in range(5):
            own, other = filled(table, rng, litert)
            builder = flatbuffers.Builder(1024)
            builder.Finish(other.Pack(builder), IDENTIFIER)
            data = packed(own, IDENTIFIER)
            assert data == bytes(builder.Output()), table
            assert packed(unpacked(data, table), IDENTIFIER) == data, table


def test_a_field_that_the_table_does_not_have_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"^Buffer has no field name$"):
        Record("Buffer", name="x")


@pytest.mark.parametrize("number", [0, 127, 255])
def test_a_union_of_an_unknown_kind_is_damage(number: int) -> None:
    operator = Record("Operator", builtinOptionsType=number, builtinOptions=Record("AbsOptions"))
    with pytest.raises(DamagedFileError) as caught:
        unpacked(packed(operator, IDENTIFIER), "Operator")
    assert str(caught.value) == f"the Operator has a table of an unknown kind, BuiltinOptions {number}"
