"""Text regions of a frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


class TextRegion(NamedTuple):
    """One line of text: four corners x, y in the frame's pixels, from its top left on clockwise."""

    corners: tuple[tuple[float, float], ...]
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class TextRegions(Prediction):
    """Text regions in reading order: from the top, and from the left within a line.

    Attributes:
        corners: float32 [n, 4, 2]: x, y in the frame's pixels; top left, top right, bottom right and bottom
            left.
        scores: float32 [n], 0 to 1.
    """

    corners: Array
    scores: Array

    def __len__(self) -> int:
        return len(self.corners)

    def __getitem__(self, index: int) -> TextRegion:
        corners = tuple((x, y) for x, y in self.corners[index].tolist())
        return TextRegion(corners, float(self.scores[index]))

    def __iter__(self) -> Iterator[TextRegion]:
        return (self[index] for index in range(len(self)))

    def draw_on(self, canvas: Canvas) -> None:
        for number, region in enumerate(self):
            canvas.polygon(region.corners, canvas.colour_of(number))
            canvas.label(str(number + 1), region.corners[0], canvas.colour_of(number))

    def __str__(self) -> str:
        if not len(self):
            return "no text found"
        lines = []
        for region in self:
            corners = "  ".join(f"{x:.0f},{y:.0f}" for x, y in region.corners)
            lines.append(f"{region.score:.3f}  {corners}")
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Json]]:
        return [
            {"score": round(r.score, 6), "corners": [[round(x, 2), round(y, 2)] for x, y in r.corners]}
            for r in self
        ]
