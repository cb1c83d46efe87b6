"""A vector that stands for a face, an image or a text: near ones are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(Prediction):
    """An embedding.

    Attributes:
        vector: float32 [d]; of length 1 if the card normalizes, as is the default.
    """

    vector: Array

    def cosine(self, other: Embedding) -> float:
        """Compute the cosine similarity, -1 to 1. It is 0 with a zero vector.

        Raises:
            UsageError: the other has another number of values.
        """
        a, b = self.vector.astype(np.float64), other.vector.astype(np.float64)
        if a.shape != b.shape:
            raise UsageError(f"embeddings of {len(a)} and {len(b)} values are from different models")
        length = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(a @ b) / length if length else 0.0

    def __len__(self) -> int:
        return len(self.vector)

    def __str__(self) -> str:
        start = " ".join(f"{value:.3f}" for value in self.vector[:4])
        return f"{len(self)} values: {start}{' ...' if len(self) > 4 else ''}"

    def as_json(self) -> dict[str, Json]:
        return {"dimensions": len(self), "vector": [round(value, 6) for value in self.vector.tolist()]}
