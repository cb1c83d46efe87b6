"""Text of a transcription's tokens; words of a text."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from edgekit.processing.spelling import BYTE_LEVEL, spelled_text


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
