"""The options of an operator, complete: the schema's defaults if the file has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit_tflite.flatbuffer import ENUMS, options_tables
from edgekit_tflite.flatbuffer import OPTIONS as WRITTEN_OPTIONS
from edgekit_tflite.records import Record, read
from edgekit_tflite.schema import NUMBERS
from edgekit_tflite.tables import DamagedFileError, Table

OPTIONS_TYPE, OPTIONS_TABLE = 3, 4
"""Slots of an Operator."""
MAX_NUMBERS = 64
"""Of a vector among the options, e.g. a shape."""

TABLES: Mapping[int, str] = {number: name for name, number in NUMBERS["BuiltinOptions"].items()}

OPTIONS: Mapping[str, str] = {
    **WRITTEN_OPTIONS,
    **options_tables("""
        ADD_N ATAN2 BATCH_TO_SPACE_ND BROADCAST_ARGS CONV_3D CUSTOM DENSIFY EMBEDDING_LOOKUP
        EXPAND_DIMS FAKE_QUANT L2_NORMALIZATION L2_POOL_2D LOG_SOFTMAX ONE_HOT PACK RANGE RANK
        REDUCE_ALL REDUCE_ANY RELU_0_TO_1 SELECT SHAPE SPACE_TO_BATCH_ND SQUEEZE
        UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK WHERE ZEROS_LIKE
    """),
}
"""Operator that is read -> its options table; empty if it has none."""


def options_of(entry: Table, code: str, name: str) -> dict[str, Any]:
    """Return every field of the operator's options table, in snake case, with enum values by name.

    Raises:
        DamagedFileError: they lie outside of the file, or are those of another operator.
    """
    expected = OPTIONS.get(code, "")
    if not expected:
        return {}
    number = entry.number(OPTIONS_TYPE, "B")
    table = entry.table(OPTIONS_TABLE, f"options of {name}") if number else None
    actual = TABLES.get(number, f"table {number}")
    if table is not None and actual != expected:
        raise DamagedFileError(f"{name} has the options of another operator, {actual}")
    options = Record(expected) if table is None else read(table, expected)
    return {_snake(field): _option(field, value) for field, value in options.fields().items()}


def _option(field: str, value: Any) -> Any:
    kind = ENUMS.get(_snake(field))
    if kind is not None and isinstance(value, int):
        return next((name for name, number in NUMBERS[kind].items() if number == value), str(value))
    if isinstance(value, np.ndarray):
        return tuple(value[:MAX_NUMBERS].tolist())
    return value


def _snake(camel: str) -> str:
    """
    >>> _snake("fusedActivationFunction"), _snake("strideH")
    ('fused_activation_function', 'stride_h')
    """
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)
