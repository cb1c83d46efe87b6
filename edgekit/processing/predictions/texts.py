"""Predictions for several texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json

SHOWN_CHARS = 60


@dataclass(frozen=True, eq=False, repr=False)
class TextPrediction(Prediction):
    """One text and its prediction."""

    text: str
    prediction: Any

    def __str__(self) -> str:
        cut = self.text if len(self.text) <= SHOWN_CHARS else self.text[: SHOWN_CHARS - 3] + "..."
        return "\n".join([cut, *(f"  {line}" for line in str(self.prediction).splitlines())])

    def as_json(self) -> dict[str, Json]:
        return {"text": self.text, "prediction": self.prediction.as_json()}


@dataclass(frozen=True, eq=False, repr=False)
class TextPredictions(Prediction):
    """Predictions for several texts, in order."""

    texts: Sequence[TextPrediction]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> TextPrediction:
        return self.texts[index]

    def __iter__(self) -> Iterator[TextPrediction]:
        return iter(self.texts)

    def __str__(self) -> str:
        return "\n".join(str(text) for text in self.texts)

    def as_json(self) -> list[dict[str, Json]]:
        return [text.as_json() for text in self.texts]
