"""Rules of the tokens of a text that an encoder-decoder writes: which may follow, and when the text ends.

They are those of transformers' ``generate`` for greedy decoding (``generation/logits_process.py``), by the
settings of ``generation_config.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.tensor_spec import Array, Json

_NEVER = np.float32(-np.inf)
_NUMBERS = ("forced_first", "shortest", "repeated_phrase")


class TextRules(NamedTuple):
    """Rules of the tokens that may be generated.

    Attributes:
        ends: Tokens that end a text (``eos_token_id``).
        suppressed: Tokens that are never generated (``suppress_tokens``, single ``bad_words_ids``).
        suppressed_first: Tokens that do not begin a text (``begin_suppress_tokens``).
        bad_words: Sequences of tokens that are not completed (``bad_words_ids``).
        forced_first: Token that begins each text (``forced_bos_token_id``); -1: any.
        shortest: Tokens, the start token included, before which no text ends (``min_length``).
        repeated_phrase: Length of phrases that do not occur twice (``no_repeat_ngram_size``); 0: any may.
    """

    ends: tuple[int, ...]
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    forced_first: int = -1
    shortest: int = 0
    repeated_phrase: int = 0

    @property
    def no_speech(self) -> int:
        """Return -1: the source is not a sound."""
        return -1

    def as_json(self) -> dict[str, Json]:
        """Return the rules in the form that ``from_table`` reads."""
        table: dict[str, Json] = {name: getattr(self, name) for name in _NUMBERS}
        lists = {name: list(getattr(self, name)) for name in ("ends", "suppressed", "suppressed_first")}
        return {**table, **lists, "bad_words": [list(word) for word in self.bad_words]}

    @classmethod
    def from_table(cls, table: Mapping[str, Json]) -> TextRules:
        """Read the rules of a variant's options.

        Raises:
            KeyError, TypeError, ValueError: they are malformed.
        """
        lists = (tuple(int(token) for token in table[name]) for name in cls._fields[:3])
        ends, suppressed, suppressed_first = lists
        words = tuple(tuple(int(token) for token in word) for word in table["bad_words"])
        return cls(ends, suppressed, suppressed_first, words, *(int(table[name]) for name in _NUMBERS))

    def check(self, vocabulary: int) -> None:
        """Check the rules against the number of tokens.

        Raises:
            ValueError: a token is not in the vocabulary.
        """
        words = (token for word in self.bad_words for token in word)
        forced = () if self.forced_first == -1 else (self.forced_first,)
        for token in (*self.ends, *self.suppressed, *self.suppressed_first, *forced, *words):
            if not 0 <= token < vocabulary:
                raise ValueError(f"token {token} is not in the vocabulary, which has {vocabulary}")
        if not self.ends or self.shortest < 0 or self.repeated_phrase < 0:
            raise ValueError("a text has no end token, or a length is negative")

    def is_end(self, token: int) -> bool:
        """Return whether a token ends the text."""
        return token in self.ends

    def after(self, prompt: Sequence[int]) -> Callable[[Array, Sequence[int]], Array]:
        """Return a function that takes logits, float32 [vocabulary], and the tokens after the prompt, and
        returns the logits with -inf for the tokens that may not follow.

        Args:
            prompt: The start token, and the text so far.
        """
        return lambda logits, generated: self._allowed(logits, [*prompt, *generated])

    def _allowed(self, logits: Array, tokens: Sequence[int]) -> Array:
        masked = logits.copy()
        if (size := self.repeated_phrase) and len(tokens) >= size:
            begin = list(tokens[len(tokens) - size + 1 :])
            for index in range(len(tokens) - size + 1):
                if list(tokens[index : index + size - 1]) == begin:
                    masked[tokens[index + size - 1]] = _NEVER
        masked[list(self.suppressed)] = _NEVER
        for word in self.bad_words:
            if list(tokens[len(tokens) - len(word) + 1 :]) == list(word[:-1]):
                masked[word[-1]] = _NEVER
        if len(tokens) < self.shortest:
            masked[list(self.ends)] = _NEVER
        if len(tokens) == 1:
            masked[list(self.suppressed_first)] = _NEVER
            if self.forced_first >= 0:
                masked[...] = _NEVER
                masked[self.forced_first] = 0
        return masked

    def without_loop(self, tokens: Sequence[int]) -> list[int] | None:
        """Return None: a text may repeat itself, unless ``repeated_phrase`` forbids it."""
        return None
