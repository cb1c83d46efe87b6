"""Number of people in a picture."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.tensor_spec import Array, Json


@dataclass(frozen=True, eq=False)
class Count:
    """The number of people, and where they are.

    Attributes:
        people: Their number; not a whole one, because it is a sum of densities.
        density: float32 [rows, columns]: people in each cell of the model's map.
    """

    people: float
    density: Array

    def __str__(self) -> str:
        return f"{self.people:.1f} people"

    def as_json(self) -> dict[str, Json]:
        return {"people": round(self.people, 3)}
