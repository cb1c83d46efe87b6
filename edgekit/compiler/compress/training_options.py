"""Checks of a training's options, before anything is loaded."""

from __future__ import annotations

import math

from edgekit.errors import UsageError


def checked_end(
    epochs: float | None, minutes: float | None, batch: int | None, learning_rate: float | None
) -> None:
    """Check that a training has an end, and that all its numbers are above 0.

    Raises:
        UsageError: there is no end, or a number is not above 0.
    """
    if epochs is None and minutes is None:
        raise UsageError("training needs a limit: set epochs, minutes or both")
    numbers = {"epochs": epochs, "minutes": minutes, "batch": batch, "learning rate": learning_rate}
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"{name} is {number:g}; it must be above 0")
