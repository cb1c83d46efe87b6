"""Signature of a text: its embedding by a text encoder, and the cosine distance of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.inputs.text import TextInput
from edgekit.runtime.predictor import SessionProtocol
from edgekit.tensor_spec import Array


class TextSignature:
    """Embeds texts with a session.

    Args:
        embedder: On a bundle whose card has one text input and the task ``embed``.

    Raises:
        UsageError: it is on another kind of bundle.
    """

    def __init__(self, embedder: SessionProtocol) -> None:
        self.session, card = embedder, embedder.card
        ids = [
            entry for entry in card.inputs.values() if isinstance(entry, TextInput) and entry.part == "ids"
        ]
        if card.task is None or card.task.kind != "embed" or len(ids) != 1 or ids[0].pair:
            name = embedder.bundle.name
            raise UsageError(
                f"{name} is not a text encoder; its card needs one text input and the task embed"
            )
        self._tokens = ids[0].tokens

    def signature_of(self, text: Any) -> Array | None:
        """Return the embedding of a text, float32 [d] of length 1.

        None if the text has none that stands for all of it: it is too long for the encoder, which would read
        its beginning only, it is not a str, or its embedding is zero.

        Raises:
            EngineError: as ``Session.run``.
        """
        try:
            feeds, placed = self.session.prepare(text)
        except UsageError:
            return None
        if int(placed.mask.sum()) >= self._tokens:  # its end may have been cut off
            return None
        vector = self.session.decode(self.session.run(feeds), placed).vector.astype(np.float64)
        length = float(np.linalg.norm(vector))
        return (vector / length).astype(np.float32) if 0 < length < np.inf else None


def text_distances(signatures: Array, signature: Array) -> Array:
    """Return the cosine distances, 0 to 2, of signatures [n, d] from another one."""
    distances: Array = 1 - signatures @ signature
    return distances
