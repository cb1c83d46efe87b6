"""A draft model: a smaller decoder of the same tokens, which guesses what a large one will write."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgekit.runtime.generate.cached_decoder import CachedDecoder, last_used
from edgekit.runtime.generate.prefix_cache import PrefixCache

if TYPE_CHECKING:
    from edgekit.runtime.generate.text_stream import TextStream
    from edgekit.target.decoder import DecoderRunner


class DraftModel:
    """The draft of a decoder, with a cache for each text that is made in turns. Not thread-safe.

    Args:
        open_runner: Loads it, with an empty cache; raises where it can't be used.
        agreement: Share, 0 to 1, of its tokens that are the large decoder's.
        identity: Of its artifact and the engine's version; "": its time is not kept.
        texts: At most so many caches.
    """

    def __init__(
        self, open_runner: Callable[[], DecoderRunner], agreement: float, identity: str = "", texts: int = 1
    ) -> None:
        self.agreement, self.identity = agreement, identity
        self._open_runner, self._texts = open_runner, texts
        self._prefixes = PrefixCache(0)
        self._caches: list[CachedDecoder] = []
        self._owners: weakref.WeakKeyDictionary[DraftText, CachedDecoder] = weakref.WeakKeyDictionary()

    def load(self) -> None:
        """Load it, if it is not. Raises what ``open_runner`` does."""
        if not self._caches:
            self._caches = [CachedDecoder(self._open_runner(), self._prefixes)]

    def measured_ms(self, history: int, rounds: int) -> float:
        """Time of one token after ``history`` others, in ms: the fastest of so many rounds."""
        self.load()
        cache, best = self._caches[0], float("inf")
        cache.whole, runner = False, cache.runner  # interrupted, this leaves tokens
        runner.truncate(0)
        runner.forward([0] * history)
        for _ in range(rounds):
            began = time.perf_counter()
            runner.forward([0])
            best = min(best, 1000 * (time.perf_counter() - began))
            runner.truncate(history)
        runner.truncate(0)
        return best

    def propose(self, text: DraftText, tokens: list[int], most: int) -> list[int]:
        """Return the tokens that it finds likeliest, one after the other.

        Args:
            text: Whose cache is used.
            tokens: The text so far.
            most: At most so many.

        Returns:
            The guess; empty where the text is longer than its context, or is to stop.
        """
        cache = self._cache_for(text, tokens)
        most = min(most, cache.runner.capacity - len(tokens) + 1)
        guess: list[int] = []
        while len(guess) < most:
            row = cache.logits(tokens + guess, stopped=text.stops)
            if row is None:
                return []
            guess.append(int(row[-1].argmax()))
        return guess

    def _cache_for(self, text: DraftText, tokens: list[int]) -> CachedDecoder:
        """Return the text's own cache, else a free one, else a new one, else the least recently used one."""
        found = self._owners.get(text)
        if found is None:
            taken = {id(cache) for cache in self._owners.values()}
            free = [cache for cache in self._caches if id(cache) not in taken]
            if not free and len(self._caches) < self._texts:
                free = [CachedDecoder(self._caches[0].runner.another(), self._prefixes)]
                self._caches += free
            found = max(free or self._caches[:1], key=lambda cache: cache.common(tokens))
            for other in [other for other, cache in self._owners.items() if cache is found]:
                del self._owners[other]
            self._owners[text] = found
        self._caches = last_used(self._caches, found)
        return found

    def close(self) -> None:
        """Free the draft; ``load`` loads it again."""
        caches, self._caches = self._caches, []
        self._owners.clear()
        for cache in caches:
            cache.close()


class DraftText:
    """A ``Proposer``: the draft's guesses for one text.

    Args:
        ask: Guesses in the session's turn: this text, its tokens, at most so many.
    """

    def __init__(self, ask: Callable[[DraftText, list[int], int], list[int]]) -> None:
        self._ask = ask
        self._stream: Callable[[], TextStream | None] = lambda: None

    def follow(self, stream: TextStream) -> None:
        """Set the stream that it guesses for; nothing is guessed once that is to stop."""
        self._stream = weakref.ref(stream)

    def stops(self) -> bool:
        """Return whether its stream is to stop."""
        stream = self._stream()
        return stream is not None and stream.stops

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return at most ``most`` tokens that the draft expects next."""
        return self._ask(self, list(tokens), most)
