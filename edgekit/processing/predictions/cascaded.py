"""What a cascade answers: what the first stage has found, and what the later ones say of each thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.tensor_spec import Json


@dataclass(frozen=True, eq=False)
class Cascaded:
    """The predictions of a cascade.

    Attributes:
        found: The first stage's prediction.
        details: For each thing in it, by stage, the prediction of the stages that looked at it.
    """

    found: Any
    details: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Each thing with its details."""
        return zip(self.found, self.details, strict=True)

    def __str__(self) -> str:
        if not len(self):
            return str(self.found)
        lines = []
        for line, details in zip(str(self.found).splitlines(), self.details, strict=True):
            said = [f"{name}: {_short(prediction)}" for name, prediction in details.items()]
            lines.append("  ".join([line, *said]))
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Json]]:
        """As the first stage's, with ``details``: stage -> its prediction."""
        return [
            {**thing, "details": {name: each.as_json() for name, each in details.items()}}
            for thing, details in zip(self.found.as_json(), self.details, strict=True)
        ]


def _short(prediction: Any) -> str:
    """The best of a prediction: its first line."""
    text = str(prediction)
    return " ".join(text.splitlines()[0].split()) if text else "nothing"
