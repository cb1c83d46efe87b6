"""Relevance score of a text pair, from a reranker."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True, order=True, repr=False)
class Relevance(Prediction):
    """Relevance of a passage to a question. Rank passages with ``sorted(found, reverse=True)``.

    Attributes:
        score: Relevance; larger is better. It is 0 to 1 if the card has ``sigmoid``, which is the default.
    """

    score: float

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def as_json(self) -> dict[str, Json]:
        return {"score": round(self.score, 6)}
