"""Ranking: one number says how well a passage fits a question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.errors import EngineError
from edgekit.processing.predictions.rank import Relevance
from edgekit.processing.task_decoder import Decoder, Outputs


@dataclass(frozen=True)
class RankOptions:
    """Options for ranking.

    Attributes:
        sigmoid: Whether the score is mapped to 0 to 1. The order stays the same.
    """

    sigmoid: bool = True


def rank(outputs: Outputs, options: RankOptions, placed: object, labels: Sequence[str] = ()) -> Relevance:
    """``score`` [1, 1], or with another number of dimensions of size 1: a cross-encoder's logit."""
    output = outputs["score"]
    if output.size != 1:
        raise EngineError(f"a relevance is one number, but the output is {list(output.shape)}")
    score = float(output.reshape(-1)[0])
    if options.sigmoid:
        score = 1 / (1 + math.exp(-max(score, -700.0)))  # beyond it exp is out of range
    return Relevance(score)


DECODERS: Mapping[str, Decoder] = {"logit": Decoder(RankOptions, rank, ("score",))}
