"""Checks of arrays against the model's inputs and outputs, and their errors. A session has its own check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import EngineError, NonFiniteOutputError, UsageError
from edgekit.tensor_spec import Array, Signature, TensorSpec


def fitted(feeds: Mapping[str, Array], shapes: Sequence[Signature]) -> dict[str, Array]:
    """Return the feeds as a runner requires them, with copies of the arrays that are not contiguous.

    Args:
        feeds: Arrays by name.
        shapes: The model's shapes, the largest last.

    Raises:
        UsageError: they fit none of the shapes.
    """
    if not isinstance(feeds, Mapping):
        raise misfit(feeds, shapes)
    for inputs, _ in reversed(shapes):
        if len(feeds) == len(inputs) and all(_fits(feeds.get(spec.name), spec) for spec in inputs):
            arrays = {spec.name: feeds[spec.name] for spec in inputs}
            return {
                name: array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")
                for name, array in arrays.items()
            }
    raise misfit(feeds, shapes)


def _fits(array: object, spec: TensorSpec) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == spec.dtype and array.shape == spec.shape


def misfit(feeds: Mapping[str, Array], shapes: Sequence[Signature]) -> UsageError:
    """Return the error for the first mismatch in feeds that have one; ``shapes`` as in :func:`fitted`."""
    inputs = shapes[-1].inputs
    if not isinstance(feeds, Mapping):
        kind = type(feeds).__name__
        return UsageError(f"feeds is a {kind}; a dict is expected: {{{', '.join(_entries(inputs))}}}")
    names = [spec.name for spec in inputs]
    whole = f"the model takes {', '.join(map(str, inputs)) or 'no input'}"
    for name in names:
        if name not in feeds:
            return UsageError(f"input {name} is missing; {whole}")
    for name in feeds:
        if name not in names:
            return UsageError(f"input {name} is unknown; {whole}")
    for number, spec in enumerate(inputs):
        allowed = dict.fromkeys(_shape(specs[number].shape) for specs, _ in shapes)
        array, expected = feeds[spec.name], f"{spec.dtype} {' or '.join(allowed)}"
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            return UsageError(f"input {spec.name} is a {kind}; a numpy array {expected} is expected")
        if array.dtype != np.dtype(spec.dtype):
            return UsageError(
                f"input {spec.name} is {array.dtype}; {expected} is expected, and values are not converted: "
                f"use .astype(np.{spec.dtype}) if this is intended"
            )
        if _shape(array.shape) not in allowed:
            return UsageError(
                f"input {spec.name} has shape {_shape(array.shape)}; {expected} is expected: "
                "shapes are fixed when a bundle is built (--shape)"
            )
    actual = ", ".join(f"{spec.name} {_shape(feeds[spec.name].shape)}" for spec in inputs)
    together = "; ".join(", ".join(f"{s.name} {_shape(s.shape)}" for s in specs) for specs, _ in shapes)
    return UsageError(f"the inputs have shapes {actual}, which the bundle does not have together: {together}")


def wrong_answer(answers: Mapping[str, Array], outputs: Sequence[TensorSpec]) -> EngineError:
    """Return the error for an engine whose outputs are not those of the model."""
    returned = ", ".join(str(TensorSpec(name, str(a.dtype), a.shape)) for name, a in answers.items())
    return EngineError(
        f"it returned {returned or 'nothing'}; the model's outputs are {', '.join(map(str, outputs))}"
    )


def _entries(inputs: Sequence[TensorSpec]) -> list[str]:
    return [f'"{spec.name}": {spec.dtype} {_shape(spec.shape)}' for spec in inputs]


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def not_finite(name: str, values: Array) -> NonFiniteOutputError:
    """Return the error for an output with NaN or infinite values."""
    bad = int(values.size - np.isfinite(values).sum())
    return NonFiniteOutputError(
        f"{bad} of {values.size} values of output {name} are NaN or infinite; the input or this variant's "
        "arithmetic is at fault: try another engine or precision"
    )
