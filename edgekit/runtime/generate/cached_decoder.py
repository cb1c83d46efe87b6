"""A decoder and the tokens that its KV cache holds: logits for any text, at the cost of what is new in it.

Whoever asks gives all tokens of a text. Those that the cache holds already, or that were saved before, are
not computed again. So a following message of a conversation, a common system prompt, rejected guesses of
speculative decoding, several conversations in turn and another engine after a failure are one case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from edgekit.errors import NonFiniteOutputError
from edgekit.runtime.generate.prefix_cache import WORTH_SAVING, PrefixCache, common_length
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.target.decoder import BatchRunner, DecoderRunner

STEP_TOKENS = 128
"""Tokens of a prompt that are read at once: between two such steps it can be cancelled."""


_NOTHING: Array = np.zeros((0, 0), np.float32)


class CachedDecoder:
    """A runner, and what its cache holds. Not thread-safe.

    Args:
        runner: ``close`` closes it. It is emptied before its first step.
        prefixes: Caches of texts that were read before.

    Attributes:
        tokens: Those that the cache holds.
        computed: Tokens computed so far.
        whole: Whether the runner's cache holds ``tokens``; False before the first step, in each step, and
            after an interrupted one.
    """

    def __init__(self, runner: DecoderRunner, prefixes: PrefixCache) -> None:
        self.runner, self.prefixes = runner, prefixes
        self.tokens: list[int] = []
        self.computed = 0
        self.whole = False

    def common(self, tokens: list[int]) -> int:
        """Return the number of a text's first tokens that the cache holds."""
        return common_length(self.tokens, tokens) if self.whole else 0

    def logits(
        self, tokens: list[int], rows: int = 1, stopped: Callable[[], bool] = lambda: False
    ) -> Array | None:
        """Return the logits after the last tokens of a text.

        Args:
            tokens: The whole text, at least ``rows``.
            rows: For how many of the last tokens.
            stopped: Asked before each step of the engine; True ends the call.

        Returns:
            float32 [rows, vocabulary]; None if it was stopped, and then what was read is kept.

        Raises:
            NonFiniteOutputError: the logits are NaN or infinite.
            Whatever the engine raises; the cache is then empty.
        """
        kept = min(self.common(tokens), len(tokens) - rows)
        if not self.whole:
            self.forget()
        try:
            kept = self._reuse(tokens, kept, rows)
            found = _NOTHING
            ends = [*range(kept + STEP_TOKENS, len(tokens) - rows, STEP_TOKENS), len(tokens)]
            for end in ends:
                if stopped():
                    self.whole = True
                    return None
                part = tokens[kept:end]
                found = self.runner.forward(part, rows if end == len(tokens) else 1)
                self.tokens += part
                self.computed += len(part)
                kept = end
            self.whole = True
            _check_finite(found)
            return found
        except BaseException:
            self.forget()
            raise

    def lacks_one(self, tokens: list[int]) -> bool:
        """Return whether the cache holds all of a text but its last token."""
        return self.whole and len(self.tokens) == len(tokens) - 1 == self.common(tokens)

    def save(self, length: int) -> None:
        """Keep what was computed of the first ``length`` tokens, for texts that begin with them."""
        if self.whole and WORTH_SAVING <= length <= len(self.tokens):
            self.prefixes.keep(self.tokens[:length], self.runner.save()[:, :, :length])

    def forget(self) -> None:
        """Empty the cache, after a failure or an interrupt: nobody knows what it holds."""
        self.whole = False
        self.tokens = []
        self.runner.truncate(0)
        self.whole = True

    def compute_known(self) -> None:
        """Compute one token in the emptied cache. Raises as ``logits`` where the runner does not work."""
        self.forget()
        self.logits([0])
        self.forget()

    def close(self) -> None:
        """Free the runner."""
        self.tokens = []
        self.runner.close()

    def _reuse(self, tokens: list[int], kept: int, rows: int) -> int:
        """Cut the cache to the tokens in common, or put a saved one in its place that has more of them."""
        wanted = len(tokens) - rows
        if len(self.tokens) - kept >= WORTH_SAVING:
            self.save(len(self.tokens))
        self.whole = False
        saved = self.prefixes.longest(tokens[:wanted]) if wanted - kept >= WORTH_SAVING else None
        if saved is not None and saved[0] >= kept + WORTH_SAVING:
            kept, cache = saved
            self.tokens = []
            self.runner.restore(cache)
            self.tokens = tokens[:kept]
        elif kept < len(self.tokens):
            self.runner.truncate(kept)
            del self.tokens[kept:]
        return kept


def last_used(caches: list[CachedDecoder], used: CachedDecoder) -> list[CachedDecoder]:
    """Return the caches with ``used`` as the last one, in a new list: an interrupt loses none of them."""
    return [*(cache for cache in caches if cache is not used), used]


def logits_of_each(caches: list[CachedDecoder], texts: list[list[int]]) -> Array:
    """Return the logits after the last token of several texts, in one step.

    Args:
        caches: Of one session, on runners that are ``BatchRunner``.
        texts: One for each, for which ``lacks_one`` is true.

    Returns:
        float32 [texts, vocabulary].

    Raises:
        As ``CachedDecoder.logits``; all of the caches are then empty.
    """
    first, others = caches[0].runner, [cache.runner for cache in caches[1:]]
    for cache in caches:
        cache.whole = False
    try:
        found: Array = cast("BatchRunner", first).forward_each(others, [text[-1] for text in texts])
        for cache, text in zip(caches, texts, strict=True):
            cache.tokens.append(text[-1])
            cache.computed += 1
            cache.whole = True
        _check_finite(found)
        return found
    except BaseException:
        for cache in caches:
            cache.forget()
        raise


def _check_finite(logits: Array) -> None:
    highest = logits.max(axis=-1)  # NaN where a logit is; -inf is a token that never comes
    if not np.isfinite(highest).all():
        raise NonFiniteOutputError("the decoder's logits are NaN or infinite")
