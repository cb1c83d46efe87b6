"""A decoder and the tokens that its KV cache holds: logits for any text, at the cost of what is new in it.

Callers give all tokens of a text. Tokens that the cache holds already, or that were saved before, are not
computed again. So a following message of a conversation, a common system prompt, rejected tokens of
speculative decoding, alternating conversations and another engine after a failure are one case.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast

import numpy as np

from edgekit.errors import EngineError, NonFiniteOutputError
from edgekit.generate.device.adapter import NO_MATRICES, AdapterRunner, Matrices
from edgekit.generate.device.prefix_cache import WORTH_SAVING, PrefixCache
from edgekit.generate.device.prefix_files import common_length
from edgekit.system.forked import leave_to_parent
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.generate.device.decoder import BatchRunner, DecoderRunner
    from edgekit.generate.device.text_stream import TextStream

PART_TOKENS = 128
"""Tokens of a prompt that one engine step reads. Between two steps it can be cancelled, and others run."""


class CachedDecoder:
    """A runner, and what its cache holds. Not thread-safe.

    Args:
        runner: ``close`` closes it. It is emptied before its first step.

    Attributes:
        tokens: Tokens in the cache.
        computed: Number of tokens computed so far.
        whole: Whether the runner's cache holds ``tokens``; False before the first step, in each step, and
            after a failure to empty it.
        owner: Returns the text that used the cache last; None if there is none.
    """

    def __init__(self, runner: DecoderRunner, prefixes: PrefixCache) -> None:
        self.runner, self.prefixes = runner, prefixes
        self.tokens: list[int] = []
        self.computed = 0
        self.whole = False
        self.owner: Callable[[], TextStream | None] = lambda: None

    @property
    def adapter(self) -> str:
        """Return the name of the adapter that computes the cache; "": none."""
        name: str = getattr(self.runner, "adapter", "")  # most decoders have none; isinstance takes 10 us
        return name

    def adapt(self, name: str, matrices_of: Callable[[str], Matrices]) -> None:
        """Use an adapter from now on. Keep what was computed with the last one.

        Raises:
            BundleError: the adapter is damaged.
            EngineError: the decoder was compiled without it.
        """
        if name == self.adapter:
            return
        if not isinstance(self.runner, AdapterRunner):
            raise EngineError(
                "the decoder was compiled without adapters; build the bundle again with --adapter"
            )
        self.save(len(self.tokens))
        matrices = matrices_of(name)
        self.whole, self.tokens = False, []
        self.runner.adapt(name, matrices)
        self.whole = True

    def common(self, tokens: list[int]) -> int:
        """Return the number of a text's first tokens that the cache holds."""
        return common_length(self.tokens, tokens) if self.whole else 0

    def read(self, tokens: list[int], rows: int = 1, part_tokens: int = PART_TOKENS) -> Array | None:
        """Run one engine step: compute the next ``part_tokens`` tokens of a text that are not in the cache.

        Args:
            tokens: The whole text, at least ``rows``.
            rows: Number of last tokens whose logits are returned.

        Returns:
            float32 [rows, vocabulary] after the last tokens; None if there are more tokens to read.

        Raises:
            NonFiniteOutputError: the logits are NaN or infinite.
            Whatever the engine raises; the cache is then empty.
        """
        start = min(self.common(tokens), len(tokens) - rows)
        if not self.whole:
            self.forget()
        try:
            start = self._reuse(tokens, start, rows)
            end = start + part_tokens
            if end >= len(tokens) - rows:
                end = len(tokens)
            part = tokens[start:end]
            logits = self.runner.forward(part, rows if end == len(tokens) else 1)
            self.tokens += part
            self.computed += len(part)
            self.whole = True
            if end < len(tokens):
                return None
            _check_finite(logits)
            return logits
        except BaseException:
            self.forget()
            raise

    def logits(self, tokens: list[int], rows: int = 1) -> Array:
        """Return the logits after the last tokens of a text, in as many engine steps as that takes."""
        while (logits := self.read(tokens, rows)) is None:
            pass
        return logits

    def lacks_one(self, tokens: list[int]) -> bool:
        """Return whether the cache holds all of a text but its last token."""
        return self.whole and len(self.tokens) == len(tokens) - 1 == self.common(tokens)

    def save(self, length: int) -> None:
        """Keep what was computed of the first ``length`` tokens, for texts that begin with them."""
        if self.whole and WORTH_SAVING <= length <= len(self.tokens):
            self.prefixes.keep(self.tokens[:length], self.runner.save()[:, :, :length], self.adapter)

    def forget(self) -> None:
        """Empty the cache after a failure, since its content is unknown."""
        self.whole = False
        self.tokens = []
        self.runner.truncate(0)
        self.whole = True

    def compute_known(self) -> None:
        """Compute one token in the emptied cache. Raises like ``read`` if the runner does not work."""
        self.forget()
        self.logits([0])
        self.forget()

    def _reuse(self, tokens: list[int], common: int, rows: int) -> int:
        """Cut the cache to the common tokens, or replace it by a saved one that has more of them."""
        max_prefix = len(tokens) - rows
        if len(self.tokens) - common >= WORTH_SAVING:
            self.save(len(self.tokens))
        self.whole = False
        saved = None
        if max_prefix - common >= WORTH_SAVING:
            saved = self.prefixes.longest(tokens[:max_prefix], self.adapter)
        if saved is not None and saved[0] >= common + WORTH_SAVING:
            common, cache = saved
            self.tokens = []
            self.runner.restore(cache)
            self.tokens = tokens[:common]
        elif common < len(self.tokens):
            self.runner.truncate(common)
            del self.tokens[common:]
        return common


class CachePool:
    """Caches of one loaded decoder: one for each text, as far as the limit allows. Not thread-safe.

    Args:
        runner: The loaded decoder; the first cache is its own.
        limit: Maximum number of caches.
    """

    def __init__(
        self,
        runner: DecoderRunner,
        prefixes: PrefixCache,
        limit: int,
        matrices_of: Callable[[str], Matrices] = lambda name: NO_MATRICES,
    ) -> None:
        self.runner, self._prefixes, self._limit = runner, prefixes, limit
        self._matrices_of = matrices_of
        self._caches = [CachedDecoder(runner, prefixes)]

    def __len__(self) -> int:
        return len(self._caches)

    def owned_by(self, stream: TextStream) -> CachedDecoder | None:
        """Return the cache that a text used last, if no other text has taken it."""
        return next((cache for cache in self._caches if cache.owner() is stream), None)

    def holding(self, tokens: list[int]) -> CachedDecoder | None:
        """Return a cache that holds these first tokens of a text, computed without an adapter."""
        plain = [cache for cache in self._caches if not cache.adapter]
        return next((cache for cache in plain if cache.common(tokens) == len(tokens)), None)

    def is_used_by_another(self, stream: TextStream) -> bool:
        """Return whether a text other than ``stream`` is being generated."""
        owners = [cache.owner() for cache in self._caches]
        return any(owner is not None and owner is not stream and not owner.ended for owner in owners)

    def assign(
        self,
        stream: TextStream,
        tokens: list[int],
        pinned: Collection[CachedDecoder | None] = (),
        adapter: str = "",
    ) -> CachedDecoder | None:
        """Return the cache for a text, with its adapter in use: its own, else a free one that shares most of
        its tokens, else a new one, else the least recently used one. None: all of them are ``pinned``.

        Raises:
            BundleError: the adapter is damaged.
            EngineError: the decoder was compiled without it.
        """
        assigned = self.owned_by(stream)
        if assigned is None:
            usable = [cache for cache in self._caches if cache not in pinned]
            free = [cache for cache in usable if (owner := cache.owner()) is None or owner.ended]
            if not free and len(self._caches) < self._limit:
                runner = leave_to_parent(self.runner.another())
                runner.row_consistent = self.runner.row_consistent
                free = [CachedDecoder(runner, self._prefixes)]
            same = [cache for cache in free if cache.adapter == adapter]
            assigned = max(same or free or usable[:1], key=lambda cache: cache.common(tokens), default=None)
            if assigned is None:
                return None
            assigned.owner = weakref.ref(stream)
        # The most recently used cache is the last one.
        self._caches = [*(cache for cache in self._caches if cache is not assigned), assigned]
        assigned.adapt(adapter, self._matrices_of)
        return assigned

    def close(self, keeps_first: bool = False) -> None:
        """Free all caches, and with the first one the decoder unless ``keeps_first``."""
        caches, self._caches = self._caches, []
        for cache in caches:
            cache.tokens, cache.whole = [], False
            if not (keeps_first and cache.runner is self.runner):
                cache.runner.close()


def logits_of_batch(caches: list[CachedDecoder], texts: list[list[int]]) -> Array:
    """Return the logits after the last token of several texts, in one engine step.

    Args:
        caches: Caches of one pool, on runners that are ``BatchRunner``.
        texts: The text of each cache, for which ``lacks_one`` is true.

    Returns:
        float32 [texts, vocabulary].

    Raises:
        As ``CachedDecoder.read``; all of the caches are then empty.
    """
    first, others = caches[0].runner, [cache.runner for cache in caches[1:]]
    for cache in caches:
        cache.whole = False
    try:
        logits: Array = cast("BatchRunner", first).forward_each(others, [text[-1] for text in texts])
        for cache, text in zip(caches, texts, strict=True):
            cache.tokens.append(text[-1])
            cache.computed += 1
            cache.whole = True
        _check_finite(logits)
        return logits
    except BaseException:
        for cache in caches:
            cache.forget()
        raise


def _check_finite(logits: Array) -> None:
    highest = logits.max(axis=-1)  # NaN where a logit is; -inf is a token that is never chosen
    if not np.isfinite(highest).all():
        raise NonFiniteOutputError("the decoder's logits are NaN or infinite")
