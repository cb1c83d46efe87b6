"""Text of a transcription's tokens; words of a text."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from functools import cache

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


def bytes_of(spelled: str) -> bytes:
    """Return the bytes that letters of a byte-level vocabulary stand for; others are left out."""
    table = _bytes()
    return bytes(table[letter] for letter in spelled if letter in table)


@cache
def _bytes() -> Mapping[str, int]:
    """Return the byte that each letter of the vocabulary stands for: printable ones for themselves, the
    others for 256, 257 ... in order (``bytes_to_unicode`` of GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    byte_by_letter = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return byte_by_letter | {chr(256 + number): byte for number, byte in enumerate(others)}


def text_of(
    tokens: Sequence[int],
    pieces: Sequence[str],
    end: int,
    spelling: str = BYTE_LEVEL,
    special: Container[int] = (),
) -> str:
    """Return the text of tokens, without spaces at its ends.

    Args:
        pieces: Text of each token as the vocabulary spells it.
        end: Token from which on tokens are special, and have no text.
        spelling: ``byte-level`` or ``sentencepiece``.
        special: Further tokens without a text.
    """
    return spelled_text([token for token in tokens if token < end], pieces, spelling, special).strip()


def words_of(text: str) -> list[str]:
    """Return the words of a text, in small letters and without punctuation.

    >>> words_of("No matter: try AGAIN, don't stop.")
    ['no', 'matter', 'try', 'again', "don't", 'stop']
    """
    return re.findall(r"[\w']+", text.lower())


def prefix_edits(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return the words to insert, delete or replace from ``words`` to each prefix of ``others``, the empty
    one first (Levenshtein, 1966).

    >>> prefix_edits(["fail", "better"], ["fail", "much", "better"])
    [2, 1, 1, 1]
    """
    row = list(range(len(others) + 1))
    for i, word in enumerate(words, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(others, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row


def word_edits(a: str, b: str) -> int:
    """Return the words to insert, delete or replace from one text to the other (Levenshtein, 1966).

    >>> word_edits("fail again, fail better", "Fail again. Fail much better!")
    1
    """
    return prefix_edits(words_of(a), words_of(b))[-1]
