"""Text of tokens, by the byte-level pair encoding of GPT-2's and Whisper's vocabularies; words of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.processing.byte_level import bytes_of


def text_of(tokens: Sequence[int], pieces: Sequence[str], end: int) -> str:
    """Return the text of tokens; special ones, from ``end`` on, have none.

    Args:
        tokens: Token ids.
        pieces: Text of each token as the vocabulary spells it.
        end: First special token.
    """
    spelled = "".join(pieces[token] for token in tokens if token < min(end, len(pieces)))
    return bytes_of(spelled).decode("utf-8", "replace").strip()


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
