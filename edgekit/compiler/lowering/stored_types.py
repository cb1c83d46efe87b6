"""Element types of ONNX values in a format that has fewer of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


def unsupported_type(subject: str, engine: str) -> Inexpressible:
    """Return the error of an element type, e.g. of ``x is complex64``."""
    return Inexpressible(
        f"{subject}, which {engine} does not support", "export the model in float32", "EK1004"
    )


def stored_type(value: ir.Value, stored: Mapping[ir.DataType, str], engine: str) -> str:
    """Return the element type in which an ONNX value is stored.

    Args:
        stored: ONNX element type -> its type in the format, a numpy name.

    Raises:
        Inexpressible: the format has none.
    """
    if value.dtype is None or value.dtype not in stored:
        dtype = "unknown" if value.dtype is None else value.dtype.name
        raise unsupported_type(f"{value.name} is {dtype}", engine)
    return stored[value.dtype]


def check_integers(array: Array, dtype: str, engine: str) -> None:
    """Check that numbers fit an integer type.

    Raises:
        Inexpressible: one does not.
    """
    limits = np.iinfo(np.dtype(dtype))
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise Inexpressible(
            f"a constant contains {array.min()} to {array.max()}, beyond {engine}'s {dtype}", code="EK1004"
        )
