"""Words of a live sound, committed once two successive hypotheses agree on them.

LocalAgreement with n = 2 (Liu, Spanakis and Niehues 2020, "Low-Latency Sequence-to-Sequence Speech
Recognition and Translation by Partial Hypothesis Selection"; Macháček, Dabre and Bojar 2023,
arXiv:2307.14743, apply it to Whisper). A new hypothesis covers the sound from its cut on, so it repeats the
words that were committed since; they are matched by edit distance, for a model may spell them otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgekit.processing.transcripts.words import prefix_edits, words_of

ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Letters of scripts without spaces between words, each of which counts as a word."""
_PIECES = re.compile(rf"\s*(?:[{ALONE}]|[^\s{ALONE}]+)")


class LocalAgreement:
    """Committed words of one stretch of sound, from its begin on."""

    def __init__(self) -> None:
        self._committed: list[str] = []
        self._tail: list[str] = []

    def agree(self, text: str) -> tuple[str, str]:
        """Commit the words that this hypothesis and the last one share.

        Returns:
            The words that are committed now, and those after them.
        """
        tail = self._after_committed(pieces_of(text))
        count = 0
        for piece, other in zip(tail, self._tail, strict=False):
            if _key(piece) != _key(other):
                break
            count += 1
        self._committed += tail[:count]
        self._tail = tail[count:]
        return "".join(tail[:count]), "".join(self._tail)

    @property
    def count(self) -> int:
        """Number of committed words."""
        return len(self._committed)

    def settle(self, text: str) -> str:
        """Commit all words of a hypothesis.

        Returns:
            The words that are committed now.
        """
        tail = self._after_committed(pieces_of(text))
        self._committed += tail
        self._tail = []
        return "".join(tail)

    def drop(self, count: int) -> None:
        """Let the stretch begin after its first committed words."""
        self._committed = self._committed[count:]

    def close(self, text: str) -> str:
        """Commit the last words of a part of the stretch, which begins after the part from now on.

        Returns:
            The words that are committed now.
        """
        pieces = pieces_of(text)
        beyond = self._beyond(pieces)
        words = [] if beyond else self._after_committed(pieces)
        self._committed, self._tail = beyond, []
        return "".join(words)

    def _after_committed(self, pieces: Sequence[str]) -> list[str]:
        return list(pieces[_nearest(self._committed, pieces)[0] :])

    def _beyond(self, pieces: Sequence[str]) -> list[str]:
        """Return the committed words that come after a part: empty unless the part ends amid them."""
        end, edits = _nearest(pieces, self._committed)
        if edits >= min(len(pieces), _nearest(self._committed, pieces)[1]):
            return []
        return self._committed[end:]


def pieces_of(text: str) -> list[str]:
    """Return a text's words, each with the spaces before it.

    >>> pieces_of("so it is.  好的"), "".join(pieces_of("so it is"))
    (['so', ' it', ' is.', '  好', '的'], 'so it is')
    """
    return _PIECES.findall(text)


def _key(piece: str) -> str:
    """Return a word for comparison: capitals and punctuation change from one hypothesis to the next."""
    return "".join(words_of(piece)) or piece.strip()


def _nearest(pieces: Sequence[str], others: Sequence[str]) -> tuple[int, int]:
    """Return the length of the prefix of ``others`` that is nearest to all of ``pieces``, and its edits."""
    edits = prefix_edits([_key(piece) for piece in pieces], [_key(piece) for piece in others])
    length = min(range(len(edits)), key=lambda size: (edits[size], abs(size - len(pieces))))
    return length, edits[length]
