"""What is said of arrays that don't fit the model's tensors. Not on the fast path: called when they don't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import EngineError, UsageError
from edgekit.target import Array, TensorSpec


def misfit(feeds: Mapping[str, Array], inputs: Sequence[TensorSpec]) -> UsageError:
    """The first thing that does not fit in feeds of which something doesn't."""
    names = [spec.name for spec in inputs]
    whole = f"the model takes {', '.join(map(str, inputs)) or 'no input'}"
    for name in names:
        if name not in feeds:
            return UsageError(f"input {name} is missing; {whole}")
    for name in feeds:
        if name not in names:
            return UsageError(f"input {name} is unknown; {whole}")
    for spec in inputs:
        array, wanted = feeds[spec.name], f"{spec.dtype} {_shape(spec.shape)}"
        if not isinstance(array, np.ndarray):
            found = type(array).__name__
            return UsageError(f"input {spec.name} is a {found}; a numpy array {wanted} is expected")
        if array.dtype != np.dtype(spec.dtype):
            return UsageError(
                f"input {spec.name} is {array.dtype}; {wanted} is expected, and nothing is converted: "
                f"use .astype(np.{spec.dtype}) if that is what you mean"
            )
        if array.shape != spec.shape:
            return UsageError(
                f"input {spec.name} has shape {_shape(array.shape)}; {wanted} is expected: "
                "shapes are fixed when a bundle is built (--shape)"
            )
    raise AssertionError("called with feeds that fit")


def wrong_answer(answers: Mapping[str, Array], outputs: Sequence[TensorSpec]) -> EngineError:
    """An engine answered something else than the model gives."""
    found = ", ".join(str(TensorSpec(name, str(a.dtype), a.shape)) for name, a in answers.items())
    return EngineError(f"it answered {found or 'nothing'}; the model gives {', '.join(map(str, outputs))}")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
