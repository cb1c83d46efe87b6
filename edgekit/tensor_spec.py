"""Arrays and their specs: name, dtype and shape of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy.typing as npt

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = "npt.NDArray[Any]"
Content: TypeAlias = "bytes | memoryview"
"""Content of a file: bytes, or read-only pages of a file."""


Json = Any  # None | bool | int | float | str | list[Json] | dict[str, Json]: what json.loads gives


class TensorSpec(NamedTuple):
    """One input or output of the source model: its own name, numpy dtype name and shape.

    An input's shape is static. One dimension of an output may be -1, if its size depends on the data (the
    boxes that NonMaxSuppression keeps).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        shape = "x".join("?" if d == -1 else str(d) for d in self.shape)
        return f"{self.name} {self.dtype} {shape or 'scalar'}"

    @property
    def is_open(self) -> bool:
        """Return whether its shape depends on the data."""
        return -1 in self.shape

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array may have this shape."""
        if len(shape) != len(self.shape):
            return False
        return all(declared in (d, -1) for d, declared in zip(shape, self.shape, strict=True))

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}

    def zeros(self) -> Array:
        return np.zeros(self.shape, np.dtype(self.dtype))


class Signature(NamedTuple):
    """Inputs and outputs of a model at one of its shapes."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def specs_of(rows: Json) -> tuple[TensorSpec, ...]:
    """Return the specs that crossed JSON, which makes a list of each: name, dtype and shape."""
    return tuple(TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in rows)


def with_shapes(specs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]]) -> tuple[TensorSpec, ...]:
    """Return the specs with other shapes, by name; those without one are unchanged."""
    return tuple(spec._replace(shape=tuple(shapes.get(spec.name, spec.shape))) for spec in specs)


THINNED_VALUES = 16_384
"""Number of values to which a golden vector of a further shape is thinned."""


def thinned(array: Array) -> Array:
    """Return every n-th value in C order, so that they are at most THINNED_VALUES; small arrays unchanged.

    >>> thinned(np.zeros((300, 300))).shape
    (15000,)
    """
    step = -(-array.size // THINNED_VALUES)
    return array if step <= 1 else array.reshape(-1)[::step]


def thinned_specs(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the specs of thinned arrays."""
    sizes = {spec.name: math.prod(spec.shape) for spec in specs}  # negative where the data decide
    steps = {name: -(-size // THINNED_VALUES) for name, size in sizes.items()}
    return with_shapes(specs, {n: (-(-sizes[n] // step),) for n, step in steps.items() if step > 1})


def cut_to(array: Array, shape: Sequence[int]) -> Array:
    """Return the first elements along each axis, repeated from the first where the axis is too short."""
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = array.take(np.arange(size) % array.shape[axis], axis)
    return np.ascontiguousarray(array).reshape(shape)


SQUARED_LIMIT = 10_000
"""Size up to which the sum of squares is used: 0.7 us for 6 values, 0.9 us for 1000, where isfinite().all()
takes 1.7 and 2.1. Beyond it a BLAS may wake its threads, to take 29 us instead of 35 for 300,000 values."""


def is_finite(values: Array) -> bool:
    """Return whether no value of a float array is NaN or infinite."""
    if values.size <= SQUARED_LIMIT and math.isfinite(np.vdot(values, values)):
        return True
    return bool(np.isfinite(values).all())  # squares may overflow although the values are finite
