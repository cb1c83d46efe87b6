"""Read the inputs and attributes of a node that is checked: constant arrays, static shapes, names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

from edgekit.compiler.model.node_checks import Dims, static_dims, times
from edgekit.tensor_spec import Array

Arrays: TypeAlias = "Sequence[Array | None]"


def input_dims(node: ir.Node, index: int) -> Dims | None:
    """Return the static shape of an input, or None."""
    return static_dims(node.inputs[index]) if index < len(node.inputs) else None


def array_at(arrays: Arrays, index: int) -> Array | None:
    """Return the constant array of an input, or None."""
    return arrays[index] if index < len(arrays) else None


def input_name(node: ir.Node, index: int) -> str:
    """Return the name of an input in parentheses, or ""."""
    value = node.inputs[index]
    return f"({value.name})" if value is not None else ""


def integers(array: Array | None) -> list[int] | None:
    """Return the values of an array of integers, or None."""
    return None if array is None or array.dtype.kind not in "iu" else [int(i) for i in array.reshape(-1)]


def shortened(text: str) -> str:
    """Shorten a text to 60 characters."""
    return text if len(text) <= 60 else text[:57] + "..."


def whole_number_complaint(
    node: ir.Node, arrays: Arrays, index: int, description: str, minimum: int
) -> str | None:
    """Return the error of an input that must be one number of at least ``minimum``, or None."""
    array = array_at(arrays, index)
    if array is None or array.dtype.kind not in "iuf":
        return None
    if array.size != 1:
        return f"{description} {input_name(node, index)} is {times(array.shape)}; it must be one number"
    number = array.reshape(()).item()
    if not math.isfinite(number) or number < minimum:
        return f"{description} {input_name(node, index)} is {number}; it must be {minimum} or more"
    return None
