"""Prediction of a cascade: objects of the first stage, and the later stages' predictions for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True, eq=False, repr=False)
class Cascaded(Prediction):
    """Predictions of a cascade.

    Attributes:
        found: Prediction of the first stage.
        details: Predictions of the later stages for each object, by stage name.
    """

    found: Any
    details: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Iterate over the objects with their details."""
        return zip(self.found, self.details, strict=True)

    def __str__(self) -> str:
        if not len(self):
            return str(self.found)
        lines = []
        for line, details in zip(str(self.found).splitlines(), self.details, strict=True):
            parts = [f"{name}: {_short(prediction)}" for name, prediction in details.items()]
            lines.append("  ".join([line, *parts]))
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Json]]:
        """Return the first stage's rows, each with ``details``: stage -> its prediction."""
        return [
            {**row, "details": {name: prediction.as_json() for name, prediction in details.items()}}
            for row, details in zip(self.found.as_json(), self.details, strict=True)
        ]


def _short(prediction: Any) -> str:
    """Return the best of a prediction: its first line."""
    text = str(prediction)
    return " ".join(text.splitlines()[0].split()) if text else "nothing"
