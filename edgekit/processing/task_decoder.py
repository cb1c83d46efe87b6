"""Decoder interface, and checks shared by its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.errors import EngineError
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array

Outputs = Mapping[str, Array]  # by role


@dataclass(frozen=True)
class Decoder:
    """Decoder for one form of a task's outputs.

    Attributes:
        options: Frozen dataclass of the options that a card may set.
        function: (outputs by role, options, details of the input from ``prepare``, labels) -> the prediction.
            For an image the third is its ``ImagePlacement``.
        roles: Roles of the required outputs. A card maps each role to an output.
        optional_roles: Roles of the optional outputs. The decoder uses those that a card maps.
        over_windows: For a recording in windows: (predictions of all windows, options) -> the recording's
            prediction. None keeps the predictions of the windows.
        whole: Function for a recording of any length or a text that is written, where the next run depends on
            the prediction so far: (run, card, item, options) -> the prediction so far, after each run.
            ``run`` is ``Session.run``; the item is a text, or samples, float64 at the input's rate. None
            means that a session prepares, runs and decodes once.
        classes: Role of the output with class scores, and (its shape, options) -> number of classes. A card's
            labels must be as many. None means that the number does not follow from a shape.
        misfit: (outputs by role, options) -> why these outputs of the source model are not what the decoder
            takes, or None. Only a build asks, which then refuses the card: a device's outputs are rounded.
    """

    options: type[Any]
    function: Callable[[Outputs, Any, Any, Sequence[str]], Prediction]
    roles: tuple[str, ...]
    optional_roles: tuple[str, ...] = ()
    over_windows: Callable[[Sequence[Any], Any], Prediction] | None = None
    classes: tuple[str, Callable[[tuple[int, ...], Any], int]] | None = None
    whole: Callable[..., Iterator[Prediction]] | None = None
    misfit: Callable[[Outputs, Any], str | None] | None = None


def classes_along(axis: int, role: str, less: int = 0) -> tuple[str, Callable[[tuple[int, ...], Any], int]]:
    """Return ``Decoder.classes`` for an output with a score for each class along an axis.

    Args:
        axis: Axis of the class scores.
        less: Number of positions along the axis that are not classes.
    """
    return role, lambda shape, options: shape[axis] - less


def rows_of(outputs: Outputs, role: str, columns: int = 0) -> Array:
    """Return an output [1, n, columns] as rows [n, columns].

    Args:
        columns: Required number of columns; 0 accepts any number from 1.

    Raises:
        EngineError: the output has another shape.
    """
    values = outputs[role]
    last = values.shape[-1] if values.ndim else 0
    if not last or (columns and last != columns):
        expected = str(columns) if columns else "columns"
        raise EngineError(f"{role} is {list(values.shape)}; it must be [1, n, {expected}]")
    return values.reshape(-1, last)


def at_least(minimum: int, **values: int) -> None:
    """Check that values are whole numbers and at least ``minimum``.

    Raises:
        ValueError: a value is below it, or is not a whole number.
    """
    for name, value in values.items():
        if not hasattr(value, "__index__"):
            raise ValueError(f"{name} is {value!r}; it must be a whole number")
        if value < minimum:
            raise ValueError(f"{name} is {value}; it must be at least {minimum}")


def within(low: float, high: float, **values: float) -> None:
    """Check that values are numbers from ``low`` to ``high``.

    Raises:
        ValueError: a value is outside, or is not a number.
    """
    for name, value in values.items():
        if not hasattr(value, "__float__"):
            raise ValueError(f"{name} is {value!r}; it must be a number")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value:g}; it must be from {low:g} to {high:g}")


def one_of(allowed: Sequence[str], **values: str) -> None:
    """Check that texts are among ``allowed``.

    Raises:
        ValueError: a text is not allowed.
    """
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
