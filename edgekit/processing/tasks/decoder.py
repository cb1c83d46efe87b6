"""What a decoder is, and the checks that its options share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.processing.predictions.prediction import Prediction

Outputs = Mapping[str, Array]  # by role


@dataclass(frozen=True)
class Decoder:
    """One form of a task's outputs.

    Attributes:
        options: The frozen dataclass of what a card may set.
        function: (outputs by role, options, what ``prepare`` said of the input, labels) -> the prediction.
            For an image the third is its ``ImagePlacement``.
        roles: The outputs that it needs, by what they mean; a card says which output each one is.
        optional_roles: Outputs that it takes where a card names them.
        over_windows: Of a sound in windows: (every window's prediction, options) -> the whole sound's; None:
            a whole sound's predictions are those of its windows.
        classes: The output that has scores of classes, by role, and (its shape, options) -> how many they
            are, by which a card's labels are counted; None: no shape says it.
    """

    options: type[Any]
    function: Callable[[Outputs, Any, Any, Sequence[str]], Prediction]
    roles: tuple[str, ...]
    optional_roles: tuple[str, ...] = ()
    over_windows: Callable[[Sequence[Any], Any], Prediction] | None = None
    classes: tuple[str, Callable[[tuple[int, ...], Any], int]] | None = None


def classes_along(axis: int, role: str, less: int = 0) -> tuple[str, Callable[[tuple[int, ...], Any], int]]:
    """``Decoder.classes`` of an output with a score for each class along an axis.

    Args:
        axis: Of the output.
        role: Of the output.
        less: How many places along the axis are no classes.
    """
    return role, lambda shape, options: shape[axis] - less


def rows_of(outputs: Outputs, role: str, columns: int = 0) -> Array:
    """An output [1, n, columns] as rows [n, columns].

    Args:
        outputs: By role.
        role: Of the output.
        columns: How many it must have; 0: at least one.

    Raises:
        EngineError: it is of another form.
    """
    values = outputs[role]
    last = values.shape[-1] if values.ndim else 0
    if not last or (columns and last != columns):
        wanted = str(columns) if columns else "columns"
        raise EngineError(f"{role} is {list(values.shape)}; it must be [1, n, {wanted}]")
    return values.reshape(-1, last)


def at_least(least: int, **values: int) -> None:
    """Refuse values below ``least``.

    Raises:
        ValueError: one is below it, or no whole number.
    """
    for name, value in values.items():
        if not hasattr(value, "__index__"):
            raise ValueError(f"{name} is {value!r}; it must be a whole number")
        if value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")


def within(low: float, high: float, **values: float) -> None:
    """Refuse values outside of ``low`` to ``high``.

    Raises:
        ValueError: one is outside, or no number.
    """
    for name, value in values.items():
        if not hasattr(value, "__float__"):
            raise ValueError(f"{name} is {value!r}; it must be a number")
        if not low <= value <= high:
            raise ValueError(f"{name} is {value:g}; it must be from {low:g} to {high:g}")


def one_of(allowed: Sequence[str], **values: str) -> None:
    """Refuse texts that are not ``allowed``.

    Raises:
        ValueError: one is another.
    """
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
