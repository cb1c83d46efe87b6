"""Text of tokens, by how their vocabulary spells it."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from functools import cache

from edgekit.processing.byte_level import bytes_of

BYTE_LEVEL, SENTENCEPIECE = "byte-level", "sentencepiece"
SPACE = "\u2581"
"""SentencePiece's mark of a word's begin."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def spelled_text(tokens: Sequence[int], pieces: Sequence[str], spelling: str, special: Container[int]) -> str:
    """Return the text of tokens. Those beyond the vocabulary have none: T5 has more rows than tokens.

    Args:
        pieces: Text of each token as the vocabulary spells it.
        spelling: ``byte-level`` or ``sentencepiece``.
        special: Tokens without a text.
    """
    spelled = [pieces[token] for token in tokens if token not in special and token < len(pieces)]
    if spelling == BYTE_LEVEL:
        return bytes_of("".join(spelled)).decode("utf-8", "replace")
    content = b"".join(_byte(piece) or piece.replace(SPACE, " ").encode() for piece in spelled)
    return content.decode("utf-8", "replace").removeprefix(" ")


@cache
def _byte(piece: str) -> bytes:
    """Return the byte that a piece like ``<0x0A>`` stands for; b"": it stands for its text."""
    match = _BYTE.fullmatch(piece)
    return bytes([int(match[1], 16)]) if match else b""
