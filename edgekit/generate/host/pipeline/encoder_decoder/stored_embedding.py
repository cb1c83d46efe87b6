"""The place of the embedding in a compiled decoder, so that the encoder's tokens are looked up there."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from edgekit.generate.device.encoder_decoder import DECODER
from edgekit.generate.host.graphs.encoder_decoder.part_writer import signed_integers
from edgekit.generate.host.graphs.language import BlockWeights
from edgekit.tensor_spec import Array, Content, Json

ROWS, SCALES = "embedding/rows", "embedding/scales"
SEARCHED_BYTES = 512
"""Bytes of the matrix that are searched; the others are compared where they are found."""


def stored_embedding(
    matrix: Array, packed: BlockWeights | None, files: Mapping[str, Content]
) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the table of ``EmbeddingTable``, and files that belong to it.

    Args:
        matrix: The embedding, float32 [vocabulary, width].
        packed: The embedding as integers, one scale for each token; None: it is stored as floats.
        files: Compiled files of both parts by name. Without the matrix in one, it is stored in a file of its
            own.
    """
    further = dict[str, bytes]()
    if packed is None:
        forms = [matrix, matrix.astype(np.float16)]
    else:
        forms = [signed_integers(packed)]
        further[SCALES] = packed.scales[:, 0].astype("<f4").tobytes()
    for array in forms:
        for columns in (False, True):
            content = np.ascontiguousarray(array.T if columns else array).tobytes()
            for name, whole in files.items():
                if name.startswith(f"{DECODER}/") and (offset := _offset(content, whole)) >= 0:
                    return _table(name, offset, array, columns), further
    return _table(ROWS, 0, forms[0], False), {**further, ROWS: np.ascontiguousarray(forms[0]).tobytes()}


def _table(name: str, offset: int, array: Array, columns: bool) -> dict[str, Json]:
    place: dict[str, Json] = {"file": name, "offset": offset, "dtype": str(array.dtype), "columns": columns}
    return {**place, "zero": 0, "scales": SCALES}


def _offset(content: bytes, whole: Content) -> int:
    """Return where ``whole`` has the content, or -1."""
    view = memoryview(whole)
    start = re.compile(re.escape(content[:SEARCHED_BYTES]))
    match = start.search(view)
    while match is not None:
        if view[match.start() : match.start() + len(content)] == content:
            return match.start()
        match = start.search(view, match.start() + 1)
    return -1
