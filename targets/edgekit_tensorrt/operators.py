"""Operators and element types that TensorRT's ONNX parser supports: ``operators.json`` as data.

There are two lists, each with its source. The first is that of 10.1, the newest published list not newer than
the floor, 10.3; the second has operators that only the parser of 2026 supports. Element types apply to an
operator as a whole. TensorRT lacks float64: its parser narrows it to float32, which the file would not show.
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
    """Lists of supported operators.

    Attributes:
        types: Operator -> names of its element types, at the floor.
        newer: Operators that only a newer parser supports.
    """

    types: Mapping[str, frozenset[str]]
    newer: frozenset[str]
    sources: Mapping[str, str]


@cache
def operators() -> Operators:
    """Load the lists, once."""
    table = json.loads((files("edgekit_tensorrt") / "operators.json").read_text("utf-8"))
    types = {op: frozenset(names.split()) for op, names in table["10.1"].items()}
    return Operators(types, frozenset(table["newer"]), table["sources"])
