"""What all predictions have in common."""

from __future__ import annotations

from typing import Protocol

from edgekit.tensor_spec import Json


class Prediction(Protocol):
    """What every task's prediction can do."""

    def __str__(self) -> str:
        """For people: a line for each thing."""

    def as_json(self) -> Json:
        """For programs."""
