"""Stop words in a stream of text, also where one is spread over several pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopWords:
    """Lets text through up to the first stop word, and holds back what may become one.

    >>> words = StopWords(["###"])
    >>> words.push("one #"), words.push("# two #"), words.push("##"), words.found
    ('one ', '## two ', '', True)
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.found = False
        self._words = tuple(words)
        self._held = ""

    def push(self, piece: str) -> str:
        """Add a piece and return the text that may be shown; at a stop word, the text before it."""
        if not self._words or self.found:
            return "" if self.found else piece
        text = self._held + piece
        places = [at for word in self._words if (at := text.find(word)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        held = max(_overlap(text, word) for word in self._words)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """Return, at the end, the text that was held back and is not a stop word."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """Characters at the end of ``text`` that are a beginning of ``word``."""
    return next((n for n in range(min(len(text), len(word) - 1), 0, -1) if text.endswith(word[:n])), 0)
