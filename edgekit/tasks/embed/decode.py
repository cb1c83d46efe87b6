"""Embedding: a vector that stands for the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class EmbedOptions:
    """Options for embeddings.

    Attributes:
        normalize: Whether the vector is scaled to length 1, for cosine similarity.
    """

    normalize: bool = True


def embed(outputs: Outputs, options: EmbedOptions, placed: object, labels: Sequence[str] = ()) -> Embedding:
    """``embedding`` [1, d], or with more dimensions of size 1."""
    output = outputs["embedding"]
    if output.size != max(output.shape, default=0):
        raise EngineError(f"an embedding is one vector, but the output is {list(output.shape)}")
    vector = output.reshape(-1).astype(np.float64)  # the squares of large values are beyond float32
    length = float(np.linalg.norm(vector)) if options.normalize else 0.0
    return Embedding((vector / length if length else vector).astype(np.float32))


def embed_mean(
    outputs: Outputs, options: EmbedOptions, placed: object, labels: Sequence[str] = ()
) -> Embedding:
    """``tokens`` [1, n, d]: their mean, without the padding (Sentence-BERT, arXiv:1908.10084).

    Where nothing is known of the text padding counts too.
    """
    tokens = _tokens(outputs)
    mask = getattr(placed, "mask", None)
    weights = np.ones(len(tokens)) if mask is None else np.asarray(mask, np.float64)
    if len(weights) != len(tokens):
        raise EngineError(
            f"the model got {len(weights)} tokens, including padding, but returned {len(tokens)}"
        )
    mean = weights @ tokens.astype(np.float64) / max(weights.sum(), 1.0)
    return embed({"embedding": mean}, options, placed, labels)


def embed_first(
    outputs: Outputs, options: EmbedOptions, placed: object, labels: Sequence[str] = ()
) -> Embedding:
    """``tokens`` [1, n, d]: the first one that is not padding, e.g. BERT's [CLS]."""
    mask = getattr(placed, "mask", None)
    first = 0 if mask is None else int(np.argmax(mask))
    return embed({"embedding": _tokens(outputs)[first]}, options, placed, labels)


def _tokens(outputs: Outputs) -> Array:
    """[n, d]"""
    tokens = outputs["tokens"]
    if tokens.ndim != 3 or tokens.shape[0] != 1:
        raise EngineError(f"the tokens of one text are [1, n, d], but the output is {list(tokens.shape)}")
    rows: Array = tokens[0]
    return rows


DECODERS: Mapping[str, Decoder] = {
    "vector": Decoder(EmbedOptions, embed, ("embedding",)),
    "mean-pooling": Decoder(EmbedOptions, embed_mean, ("tokens",)),
    "cls-pooling": Decoder(EmbedOptions, embed_first, ("tokens",)),
}
