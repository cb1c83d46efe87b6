"""The best classes of an input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True)
class Class:
    """One class of an answer: its number, its name (the number if the card has no labels), its score."""

    index: int
    label: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Classes(Prediction):
    """The best classes of an image, best first.

    Attributes:
        indices: int64 [k].
        scores: float32 [k], 0 to 1.
        labels: The card's labels by class number; empty if it has none.
    """

    indices: Array
    scores: Array
    labels: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Class:
        class_index = int(self.indices[index])
        return Class(class_index, label_of(self.labels, class_index), float(self.scores[index]))

    def __iter__(self) -> Iterator[Class]:
        return (self[index] for index in range(len(self)))

    def draw_on(self, canvas: Canvas) -> None:
        for row, entry in enumerate(self):
            corner = (0, row * (canvas.text_height + 1))
            canvas.text(f"{entry.label} {entry.score:.2f}", corner, canvas.colour_of(row))

    def __str__(self) -> str:
        width = max((len(entry.label) for entry in self), default=0)
        return "\n".join(f"{entry.label:{width}}  {entry.score:.3f}" for entry in self)

    def as_json(self) -> list[dict[str, Json]]:
        return [{"index": f.index, "label": f.label, "score": round(f.score, 6)} for f in self]
