"""Common interface of all predictions."""

from __future__ import annotations

from typing import Protocol

from edgekit.tensor_spec import Json


class Prediction(Protocol):
    """Interface of every task's prediction."""

    def __str__(self) -> str:
        """Return text for people, with one line for each object."""

    def as_json(self) -> Json:
        """Return JSON for programs."""
