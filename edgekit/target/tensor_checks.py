"""Checks of arrays against the model's inputs and outputs, and their errors. A session has its own check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.errors import EngineError, NonFiniteOutputError, UsageError
from edgekit.target.shape_range import shape_of, takes, texts_of, together
from edgekit.tensor_spec import Array, Signature, TensorSpec


def fitted(feeds: Mapping[str, Array], shapes: Sequence[Signature]) -> dict[str, Array]:
    """Return the feeds as a runner requires them, with copies of the arrays that are not contiguous.

    Args:
        shapes: The model's shapes, the largest last.

    Raises:
        UsageError: they fit none of the shapes.
    """
    if not isinstance(feeds, Mapping):
        raise misfit(feeds, shapes)
    inputs = shapes[-1].inputs
    if len(feeds) != len(inputs) or not all(_is(feeds.get(spec.name), spec.dtype) for spec in inputs):
        raise misfit(feeds, shapes)
    arrays = {spec.name: feeds[spec.name] for spec in inputs}
    if shape_of(shapes, {name: array.shape for name, array in arrays.items()}) is None:
        raise misfit(feeds, shapes)
    return {
        name: array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")
        for name, array in arrays.items()
    }


def filled(out: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Copy outputs into the caller's arrays; return the outputs with those arrays in their places.

    Raises:
        UsageError: an array does not fit; then none was written to.
    """
    if not isinstance(out, Mapping):
        raise UsageError(f"out is a {type(out).__name__}; a dict of arrays by output name is expected")
    for name, array in out.items():
        if name not in outputs:
            raise UsageError(
                f"out has {name}, which is not an output; the model's outputs are {', '.join(outputs)}"
            )
        values = outputs[name]
        expected = f"a C-contiguous, writeable array {values.dtype} {_shape(values.shape)} is expected"
        if not isinstance(array, np.ndarray):
            raise UsageError(f"out {name} is a {type(array).__name__}; {expected}")
        if array.dtype != values.dtype or array.shape != values.shape:
            raise UsageError(f"out {name} is {array.dtype} {_shape(array.shape)}; {expected}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            fault = "not contiguous" if array.flags.writeable else "read-only"
            raise UsageError(f"out {name} is {fault}; {expected}")
    for name, array in out.items():
        array[...] = outputs[name]
    return {**outputs, **out}


def _is(array: object, dtype: str) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == dtype


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
    for spec in inputs:
        array, expected = feeds[spec.name], f"{spec.dtype} {' or '.join(texts_of(shapes, spec.name))}"
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            return UsageError(f"input {spec.name} is a {kind}; a numpy array {expected} is expected")
        if array.dtype != np.dtype(spec.dtype):
            return UsageError(
                f"input {spec.name} is {array.dtype}; {expected} is expected, and values are not converted: "
                f"use .astype(np.{spec.dtype}) if this is intended"
            )
        if not takes(shapes, spec.name, array.shape):
            return UsageError(
                f"input {spec.name} has shape {_shape(array.shape)}; {expected} is expected: "
                "shapes are fixed when a bundle is built"
            )
    actual = ", ".join(f"{spec.name}={_shape(feeds[spec.name].shape)}" for spec in inputs)
    return UsageError(
        f"the inputs have shapes {actual}, which the bundle does not have together: "
        f"{'; '.join(together(shapes))}"
    )


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
