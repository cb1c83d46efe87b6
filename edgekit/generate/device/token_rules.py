"""Rules of the tokens of an encoder-decoder: which may follow, and when the text ends.

``TokenRules`` are those of a transcription:

    text             a token below ``end``
    special          ``end`` and those after it
    timestamp        ``timestamp_first`` + n: n * 20 ms after the window's start

With timestamps, a segment is a timestamp, text and a timestamp; the next one starts with a timestamp that is
not before. These are the rules of Whisper's own decoding (Radford et al. 2022, 4.5).

``TextRules`` of a text written from another one are those of transformers' ``generate`` for greedy decoding
(``generation/logits_process.py``), by the settings of ``generation_config.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.tensor_spec import Array, Json

PERIODS_LIMIT = 16
"""Longest repeated phrase that is recognized, in tokens."""
REPEATED_TOKENS, REPEATED_TIMES = 12, 4
"""A phrase is a loop where its copies at the end of a text are at least so many, and so many tokens long."""
_FIELDS = ("end", "no_timestamps", "timestamp_first", "no_speech")
_NEVER = np.float32(-np.inf)
_NUMBERS = ("forced_first", "shortest", "repeated_phrase")


class TokenRules(NamedTuple):
    """Rules of the tokens that may be generated.

    Attributes:
        end: Token that ends a text. All tokens from it on are special.
        no_timestamps: Prompt token that asks for text without timestamps; never generated.
        timestamp_first: Token of the timestamp 0; those that follow it are timestamps too.
        no_speech: Token whose probability at the start of a text is that of no speech; -1: there is none.
        suppressed: Tokens that are never generated.
        suppressed_first: Tokens that do not begin a text.
        first_timestamp_limit: Greatest timestamp that begins a text, in steps of 20 ms.
    """

    end: int
    no_timestamps: int
    timestamp_first: int
    no_speech: int
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]
    first_timestamp_limit: int = 50

    def as_json(self) -> dict[str, Json]:
        """Return the rules in the form that ``of`` reads."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in self._asdict().items()}

    @classmethod
    def from_table(cls, table: Mapping[str, Json]) -> TokenRules:
        """Read the rules of a variant's options.

        Raises:
            KeyError, TypeError, ValueError: they are malformed.
        """
        numbers = {name: int(table[name]) for name in (*_FIELDS, "first_timestamp_limit")}
        lists = {name: tuple(int(i) for i in table[name]) for name in ("suppressed", "suppressed_first")}
        end, no_timestamps, timestamp_first, no_speech, limit = numbers.values()
        never, never_first = lists.values()
        return cls(end, no_timestamps, timestamp_first, no_speech, never, never_first, limit)

    def check(self, vocabulary: int) -> None:
        """Check the rules against the number of tokens.

        Raises:
            ValueError: a token is not in the vocabulary.
        """
        named = [self.end, self.no_timestamps, self.timestamp_first, *self.suppressed, *self.suppressed_first]
        wrong = next((token for token in named if not 0 <= token < vocabulary), None)
        if wrong is not None or not -1 <= self.no_speech < vocabulary:
            token = self.no_speech if wrong is None else wrong
            raise ValueError(f"token {token} is not in the vocabulary, which has {vocabulary}")

    def is_end(self, token: int) -> bool:
        """Return whether a token ends the text."""
        return token == self.end

    def after(self, prompt: Sequence[int]) -> Callable[[Array, Sequence[int]], Array]:
        """Return ``allowed`` for the texts that follow a prompt."""
        timed = self.no_timestamps not in prompt
        return lambda logits, generated: self.allowed(logits, generated, timed)

    def without_loop(self, tokens: Sequence[int]) -> list[int] | None:
        """Return the tokens without the copies of a phrase at their end, and without the timestamps between
        them; None: they do not end in a loop."""
        places = [index for index, token in enumerate(tokens) if token < self.timestamp_first]
        repeated = repeated_tail([tokens[index] for index in places])
        return list(tokens[: places[-repeated - 1] + 1]) if repeated else None

    def allowed(self, logits: Array, generated: Sequence[int], timed: bool) -> Array:
        """Return the logits with -inf for the tokens that may not follow.

        Args:
            logits: float32 [vocabulary]; not changed.
            generated: Tokens after the prompt.
            timed: Whether the text has timestamps.
        """
        masked, never = logits.copy(), np.float32(-np.inf)
        masked[list(self.suppressed)] = never
        masked[self.end + 1 : self.timestamp_first] = never
        if not generated:
            masked[list(self.suppressed_first)] = never
        if not timed:
            masked[self.timestamp_first :] = never
            return masked
        first = self.timestamp_first
        if not generated:
            masked[:first] = never
            masked[first + self.first_timestamp_limit + 1 :] = never
            return masked
        is_timed = [token >= first for token in generated[-2:]]
        if is_timed[-1]:
            if all(is_timed):  # a pair, or the first one: text follows
                masked[first:] = never
            else:
                masked[: self.end] = never
        times = [token for token in generated if token >= first]
        if times:
            opens = is_timed[-1] and not all(is_timed)
            masked[first : times[-1] + (0 if opens else 1)] = never
        largest = masked.max()
        if np.isfinite(largest):
            weights = np.exp(masked - largest)
            if weights[first:].sum() > weights[:first].max():  # a timestamp is more likely than any text
                masked[:first] = never
        return masked


def log_probability(logits: Array, token: int) -> float:
    """Return the natural logarithm of a token's probability by a row of logits.

    Exponentials of 51,864 float32 take numpy 0.03 ms, of float64 0.33 ms: a tenth of a token's time.
    """
    below = logits - logits.max()
    return float(below[token]) - float(np.log(np.exp(below).sum()))


def repeated_tail(tokens: Sequence[int]) -> int:
    """Return the number of tokens at the end that only repeat a phrase before them; 0: none.

    >>> repeated_tail([7, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2]), repeated_tail([1, 2, 1, 2, 1, 2])
    (10, 0)
    """
    for period in range(1, PERIODS_LIMIT + 1):
        times = max(REPEATED_TIMES, -(-REPEATED_TOKENS // period))
        tail = list(tokens[-period * times :])
        if len(tail) == period * times and tail == tail[:period] * times:
            return period * (times - 1)
    return 0


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
