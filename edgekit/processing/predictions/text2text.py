"""A text written from another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True, repr=False)
class WrittenText(Prediction):
    """A text written from another one.

    Attributes:
        reason: Why it ended: ``stop``, the model ended it; ``length``, the limit of tokens was reached;
            ``""``: it goes on.
        source_tokens: Number of tokens of the text that was read.
    """

    text: str
    tokens: tuple[int, ...] = ()
    reason: Literal["stop", "length", ""] = ""
    source_tokens: int = 0

    def __str__(self) -> str:
        return self.text

    def as_json(self) -> dict[str, Json]:
        return {"text": self.text, "tokens": len(self.tokens), "reason": self.reason}
