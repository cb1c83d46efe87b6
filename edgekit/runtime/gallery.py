"""A gallery of embeddings with names: who is this face, which image or text is nearest?

    gallery = Gallery()
    gallery.add("Ada", session.predict(photo_of_ada))
    gallery.save("faces.npz")
    for name, score in Gallery.open("faces.npz").search(session.predict(frame), top=3): ...

A search is one product of a matrix and a vector, in numpy; docs/embeddings.md has its time.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.predictions.embed import Embedding
from edgekit.system.atomic_files import write_atomically
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Array

LIMIT_BYTES = 2 << 30
"""Of a stored gallery, and of what is in it: a million embeddings of 512 values."""
NAMES, VECTORS = "names", "vectors"


class Match(NamedTuple):
    """An entry of a gallery, and its cosine similarity to what was searched: -1 to 1."""

    name: str
    score: float


class Gallery:
    """Names with their embeddings; a name may have several. Not for several threads at once."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._rows = np.zeros((0, 0), np.float32)  # room for more than there are: adding is cheap

    def __len__(self) -> int:
        return len(self.names)

    @property
    def vectors(self) -> Array:
        """float32 [entries, d], each of length 1."""
        return self._rows[: len(self.names)]

    def add(self, name: str, embedding: Embedding | Array) -> None:
        """Put an entry in.

        Raises:
            UsageError: it is not a vector of the gallery's size, is zero, or is not finite.
        """
        vector = self._unit(embedding)
        if not self.names:
            self._rows = np.zeros((0, len(vector)), np.float32)
        if len(self.names) == len(self._rows):
            enlarged = np.zeros((max(16, 2 * len(self._rows)), len(vector)), np.float32)
            enlarged[: len(self._rows)] = self._rows
            self._rows = enlarged
        self._rows[len(self.names)] = vector
        self.names.append(name)

    def remove(self, name: str) -> int:
        """Take all entries of a name out; how many there were."""
        remaining = [index for index, other in enumerate(self.names) if other != name]
        removed = len(self.names) - len(remaining)
        self._rows = self._rows[remaining]
        self.names = [self.names[index] for index in remaining]
        return removed

    def search(self, embedding: Embedding | Array, top: int = 5, least: float = -1.0) -> list[Match]:
        """Return the nearest entries.

        Returns:
            Nearest first; equal ones in the order in which they were put in.

        Raises:
            UsageError: it is not a vector of the gallery's size, is zero or not finite; or top is below 1.
        """
        if top < 1:
            raise UsageError(f"top is {top}; it must be at least 1")
        if not self.names:
            return []
        scores = self.vectors @ self._unit(embedding)
        if top < len(
            scores
        ):  # all that are as near as the last of the best, so that equal ones keep their order
            near = np.flatnonzero(scores >= np.partition(scores, -top)[-top])
        else:
            near = np.arange(len(scores))
        best = near[np.argsort(-scores[near], kind="stable")][:top]
        nearest = zip(best.tolist(), scores[best].tolist(), strict=True)
        return [Match(self.names[index], min(1.0, score)) for index, score in nearest if score >= least]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an .npz with ``names`` and ``vectors``, whole or not at all.

        Raises:
            UsageError: the gallery is empty, or a name ends with a NUL, which .npz does not hold.
            OSError: it can't be written.
        """
        names = np.array(self.names, np.str_)
        if not len(names) or names.tolist() != self.names:
            reason = "a name ends with NUL" if len(names) else "it is empty"
            raise UsageError(f"{os.fspath(path)}: the gallery can't be stored: {reason}")
        stored = io.BytesIO()
        np.savez(stored, names=names, vectors=self.vectors)
        write_atomically(Path(path), [stored.getvalue()])

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Gallery:
        """Read what ``save`` wrote. Nothing of a file is executed: it holds no pickles.

        Raises:
            UsageError: it can't be read, or is not a gallery.
        """
        try:
            content = read_plain(Path(path), LIMIT_BYTES)
            with zipfile.ZipFile(io.BytesIO(content)) as parts:
                if sum(entry.file_size for entry in parts.infolist()) > LIMIT_BYTES:
                    raise ValueError(f"it unpacks to more than {LIMIT_BYTES >> 30} GB")
            with np.load(io.BytesIO(content), allow_pickle=False) as stored:
                names, vectors = stored[NAMES], stored[VECTORS]
            if names.dtype.kind != "U" or vectors.dtype != np.float32:
                raise ValueError(f"names are {names.dtype} and vectors {vectors.dtype}, not text and float32")
            if vectors.ndim != 2 or names.shape != vectors.shape[:1] or not vectors.size:
                raise ValueError(f"names are {list(names.shape)} and vectors {list(vectors.shape)}")
            lengths = np.linalg.norm(vectors, axis=1)
            if not np.allclose(lengths, 1, atol=1e-3):  # also where one is not finite
                raise ValueError("vectors do not have length 1")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise UsageError(f"{os.fspath(path)} can't be read as a gallery: {reason}") from None
        gallery = cls()
        gallery.names, gallery._rows = names.tolist(), vectors
        return gallery

    def _unit(self, embedding: Embedding | Array) -> Array:
        vector = embedding.vector if isinstance(embedding, Embedding) else embedding
        vector = np.asarray(vector, np.float64)
        width = self._rows.shape[1] if self.names else vector.size
        if vector.ndim != 1 or vector.size != width or not width:
            size = f"{width} values" if self.names else "at least one value"
            raise UsageError(f"an embedding must be a vector of {size}, not {list(vector.shape)}")
        length = float(np.linalg.norm(vector))
        if not 0 < length < np.inf:
            raise UsageError("the embedding is zero or not finite, so it has no nearest neighbour")
        return (vector / length).astype(np.float32)
