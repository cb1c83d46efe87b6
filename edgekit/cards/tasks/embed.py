"""Embedding: a vector that stands for the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.cards.predictions.embedding import Embedding
from edgekit.cards.tasks.decoder import Decoder, Outputs
from edgekit.errors import EngineError


@dataclass(frozen=True)
class EmbedOptions:
    """``normalize``: whether the vector is scaled to length 1, as cosine similarity has it."""

    normalize: bool = True


def embed(outputs: Outputs, options: EmbedOptions, placed: object, labels: Sequence[str] = ()) -> Embedding:
    """``embedding`` [1, d], or with more dimensions of size 1."""
    output = outputs["embedding"]
    if output.size != max(output.shape, default=0):
        raise EngineError(f"an embedding is one vector, and the output is {list(output.shape)}")
    vector = output.reshape(-1).astype(np.float64)  # the squares of large values are beyond float32
    length = float(np.linalg.norm(vector)) if options.normalize else 0.0
    return Embedding((vector / length if length else vector).astype(np.float32))


DECODERS: Mapping[str, Decoder] = {"vector": Decoder(EmbedOptions, embed, ("embedding",))}
