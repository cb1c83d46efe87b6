"""Number of people in a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.processing.predictions import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True, eq=False, repr=False)
class Count(Prediction):
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

    def draw_on(self, canvas: Canvas) -> None:
        """Tint the crowded cells, and write the number."""
        width, height = canvas.image.size
        rows, columns = self.density.shape
        cells = np.ix_(np.arange(height) * rows // height, np.arange(width) * columns // width)
        densest = max(float(self.density.max(initial=0)), 1e-9)
        canvas.cover(self.density[cells] / densest, canvas.colour_of(0))
        canvas.text(str(self), (0, 0), canvas.colour_of(0))
