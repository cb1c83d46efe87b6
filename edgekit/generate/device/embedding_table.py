"""The embedding of an encoder-decoder as the decoder's file has it, for the encoder's tokens.

The matrix is stored once, in the decoder's artifact, as its columns or its rows. The build finds its place in
the file; here rows are read through the file's mapping, of which the operating system keeps one copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgekit.tensor_spec import Array, Json

TYPES = ("float32", "float16", "int8", "uint8")
STEM = ((127, 64), (7, 3), (3, 2))
"""Kernel sizes and strides."""
LEAST_SAMPLES = 895
"""Samples of the first position; a shorter sound is followed by zeros."""


class EmbeddingTable:
    """Rows of the embedding.

    Args:
        table: ``file`` and ``offset`` in bytes, ``dtype``, whether the matrix is stored by ``columns``, and
            for integers their ``zero``, and ``scales``: the file with one float32 for each token.

    Raises:
        KeyError, TypeError, ValueError, OSError: the table is malformed or does not fit the files.
    """

    def __init__(
        self, table: Mapping[str, Json], files: Mapping[str, Path], vocabulary: int, width: int
    ) -> None:
        dtype, offset = str(table["dtype"]), int(table["offset"])
        if dtype not in TYPES or offset < 0:
            raise ValueError(f"its embedding has the type {dtype[:20]} at {offset}")
        shape = (width, vocabulary) if table["columns"] else (vocabulary, width)
        size_bytes = vocabulary * width * np.dtype(dtype).itemsize
        path = files[table["file"]]
        if path.stat().st_size < offset + size_bytes:
            raise ValueError(f"its embedding is beyond the end of {table['file']}")
        self._matrix = np.memmap(path, dtype, "r", offset, shape)
        self._axis, self._zero, self._scales = int(bool(table["columns"])), int(table["zero"]), None
        if np.dtype(dtype).kind != "f":
            self._scales = np.fromfile(files[table["scales"]], np.float32)
            if len(self._scales) != vocabulary:
                raise ValueError(f"its embedding has {len(self._scales)} scales for {vocabulary} tokens")

    def rows(self, tokens: Array) -> Array:
        """Return the embeddings of tokens, float32 [tokens, width].

        Args:
            tokens: int64 [tokens], each below the size of the vocabulary.
        """
        stored = np.take(self._matrix, tokens, axis=self._axis).astype(np.float32)
        rows = stored.T if self._axis else stored
        if self._scales is not None:
            rows = (rows - np.float32(self._zero)) * self._scales[tokens, None]
        return np.ascontiguousarray(rows)


def stem_sizes(samples: int) -> list[int]:
    """Return the number of frames after each convolution; the last one is that of positions.

    >>> stem_sizes(895), stem_sizes(16000)
    ([13, 3, 1], [249, 81, 40])
    """
    sizes = []
    for size, stride in STEM:
        samples = (samples - size) // stride + 1
        sizes.append(samples)
    return sizes
