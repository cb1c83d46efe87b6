"""Which operators TensorRT's ONNX parser takes, and of which element types: ``operators.json`` as data.

Two lists, each with its source: that of 10.1, the newest written list not newer than the floor, 10.3; and
what the parser of 2026 says it takes besides. Element types are those that the list gives for an operator as
a whole. float64 is no type of TensorRT: its parser narrows it to float32, which the file would not say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

NEWEST_OPSET = 20
"""What the parser of 10.0 to 10.3 reads: operators.md of 10.1, "opset 9 to 20"."""

TYPES: Mapping[str, str] = {
    "FLOAT": "fp32",
    "FLOAT16": "fp16",
    "BFLOAT16": "bf16",
    "INT32": "int32",
    "INT64": "int64",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT4": "int4",
    "BOOL": "bool",
    "FLOAT8E4M3FN": "fp8",
}
"""ONNX element type -> its name in the lists."""


@dataclass(frozen=True)
class Operators:
    """The lists.

    Attributes:
        types: Operator -> names of the element types it takes, at the floor.
        newer: Operators that only a newer parser takes.
        sources: List -> where it is written.
    """

    types: Mapping[str, frozenset[str]]
    newer: frozenset[str]
    sources: Mapping[str, str]


@cache
def operators() -> Operators:
    """The lists, read once."""
    table = json.loads((files("edgekit_tensorrt") / "operators.json").read_text("utf-8"))
    types = {op: frozenset(names.split()) for op, names in table["10.1"].items()}
    return Operators(types, frozenset(table["newer"]), table["sources"])
