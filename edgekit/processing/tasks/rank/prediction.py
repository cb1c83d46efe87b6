"""How well a text fits another one, as rerankers say it."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.tensor_spec import Json


@dataclass(frozen=True, order=True)
class Relevance:
    """A number by which passages of one question are ordered: ``sorted(found, reverse=True)``.

    Attributes:
        score: The larger, the better it fits; 0 to 1 where the card has ``sigmoid``, as is the default.
    """

    score: float

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def as_json(self) -> dict[str, Json]:
        return {"score": round(self.score, 6)}
