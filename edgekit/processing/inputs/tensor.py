"""An input that is an array, given as it is, or a constant: ``kind = "tensor"`` in a card."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.errors import CardError
from edgekit.system.formats.strict_tables import choice, numbers, only, whole_numbers
from edgekit.tensor_spec import Array, Json

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "int64", "bool")
VALUE_LIMIT = 4096
"""Most elements of a constant that a card spells out; more belong into the model."""


@dataclass(frozen=True)
class TensorInput:
    """Array input, passed unchanged, or a constant.

    Attributes:
        name: The input's name in the model.
        shape: Static shape. It replaces dynamic dimensions of the model.
        range: ``[least, greatest]`` value of random samples.
        value: Constant that accompanies every image or recording: one number for all elements, or one for
            each, row by row. Without it, the caller gives the array.
        dtype: Data type of ``value``.
    """

    kind: ClassVar[str] = "tensor"

    name: str
    shape: tuple[int, ...]
    range: tuple[float, float] | None = None
    value: tuple[float, ...] | None = None
    dtype: str = "float32"

    def constant(self) -> Array:
        """Return the constant as an array of the input's shape."""
        values = np.asarray(self.value).astype(self.dtype)
        if len(values) == 1:
            return np.full(self.shape, values[0])  # keeps a scalar's rank, which ascontiguousarray does not
        return values.reshape(self.shape)

    def as_json(self) -> dict[str, Json]:
        table: dict[str, Json] = {"kind": "tensor", "shape": list(self.shape)}
        if self.range is not None:
            table["range"] = list(self.range)
        if self.value is not None:
            table |= {"value": list(self.value), "dtype": self.dtype}
        return table


def read_tensor(name: str, table: dict[str, Json], location: str) -> TensorInput:
    """Read the tensor input of a card's table.

    Raises:
        CardError: it is malformed.
    """
    only(table, ("kind", "shape", "range", "value", "dtype"), location)
    shape = whole_numbers(table, "shape", location, minimum=1)
    limits = None
    if "range" in table:
        ends = numbers(table, "range", location)
        if len(ends) != 2 or ends[0] > ends[1]:
            raise CardError(f"{location}.range is {list(ends)}; it must be [least, greatest]")
        limits = ends[0], ends[1]
    if "value" not in table:
        if "dtype" in table:
            raise CardError(f"{location}.dtype needs value; without it, the model's dtype is used")
        return TensorInput(name, shape, limits)
    if limits is not None:
        raise CardError(f"{location} has both value and range; a constant has no range")
    dtype = choice(table, "dtype", DTYPES, location)
    raw_value = table["value"]
    value = numbers({"value": raw_value if isinstance(raw_value, list) else [raw_value]}, "value", location)
    if len(value) != 1 and (len(value) > VALUE_LIMIT or len(value) != math.prod(shape)):
        raise CardError(
            f"{location}.value has {len(value)} numbers; it must be one, or one for each element of "
            f"{list(shape)}, at most {VALUE_LIMIT}"
        )
    converted = np.asarray(value).astype(dtype)
    if not np.array_equal(converted.astype(np.float64), np.asarray(value)) and np.dtype(dtype).kind != "f":
        raise CardError(f"{location}.value is {list(value)}; it is outside of {dtype}")
    return TensorInput(name, shape, None, value, dtype)
