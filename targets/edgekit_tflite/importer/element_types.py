"""Element types: TFLite's numbers and names, numpy's names, ONNX's numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import helper

from edgekit_tflite.schema import NUMBERS

DTYPES: Mapping[int, str] = {number: name.lower() for name, number in NUMBERS["TensorType"].items()}
NUMPY: Mapping[str, str] = {
    **{
        name: name
        for name in (
            "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
            "uint64", "bool",
        )
    },
    "int4": "int8",  # two in a byte, unpacked here
}  # fmt: skip
"""Element types whose constants are read -> numpy's."""
SCALED = frozenset({"int4", "int8", "uint8", "int16"})
"""Element types that stand for floats if they have a scale; int32 does too, as a bias."""


def element_type(dtype: str) -> int:
    """ONNX's number of an element type in NUMPY."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(NUMPY[dtype])))
