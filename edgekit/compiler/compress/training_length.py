"""Length of a student's training, ``20min``, ``90s``, ``1h`` or ``12epochs``, and checks of its numbers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from edgekit.errors import UsageError

MINUTES = {"s": 1 / 60, "min": 1.0, "h": 60.0}


@dataclass(frozen=True)
class TrainingLength:
    """Number of epochs, or a time.

    Attributes:
        epochs: Number of passes over the samples; None for as many as the time allows.
        minutes: Time limit in minutes; None for no limit.
    """

    epochs: float | None
    minutes: float | None
    text: str

    def __str__(self) -> str:
        return self.text

    def part(self, share: float) -> tuple[float | None, float | None]:
        return (
            None if self.epochs is None else share * self.epochs,
            None if self.minutes is None else share * self.minutes,
        )


def training_length(text: str) -> TrainingLength:
    """Parse a length.

    >>> training_length("90 s").minutes, training_length("12epochs").epochs
    (1.5, 12.0)
    """
    match = re.fullmatch(r"\s*(\d{1,6}(?:\.\d+)?)\s*(s|min|h|epochs?)\s*", text, re.ASCII)
    number = float(match[1]) if match else 0.0
    if match is None or not number:
        raise UsageError(f"--distil is {text!r}; it must be a length of training, e.g. 20min, 1h or 12epochs")
    if match[2] in MINUTES:
        return TrainingLength(None, number * MINUTES[match[2]], text.strip())
    return TrainingLength(number, None, text.strip())


def checked_end(
    epochs: float | None, minutes: float | None, batch: int | None, learning_rate: float | None
) -> None:
    """Check that a training has an end, and that all its numbers are above 0."""
    if epochs is None and minutes is None:
        raise UsageError("training needs a limit: set epochs, minutes or both")
    numbers = {"epochs": epochs, "minutes": minutes, "batch": batch, "learning rate": learning_rate}
    for name, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"{name} is {number:g}; it must be above 0")
