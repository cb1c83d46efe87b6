"""Text read from an image of one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True, eq=False, repr=False)
class TextLine(Prediction):
    """The text of one line.

    Attributes:
        text: The text, or "" if nothing was read.
        score: Mean of the characters' scores, 0 to 1; 0 without characters.
        scores: float32 [characters]: score of each character.
        positions: float32 [characters]: each character's centre along the input's width, 0 to 1.
    """

    text: str
    score: float
    scores: Array
    positions: Array

    def __len__(self) -> int:
        return len(self.text)

    def draw_on(self, canvas: Canvas) -> None:
        canvas.text(f"{self.text} {self.score:.2f}", (0, 0), canvas.colour_of(0))

    def __str__(self) -> str:
        return f"{self.text}  {self.score:.3f}" if self.text else "no text read"

    def as_json(self) -> dict[str, Json]:
        return {"text": self.text, "score": round(self.score, 6)}
