"""The loaded decoder of a session with its caches: one for each text that is made in turns, as far as
allowed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import UsageError
from edgekit.runtime.generate.cached_decoder import CachedDecoder
from edgekit.runtime.generate.decoder_chain import Decoders
from edgekit.runtime.generate.measure_speculation import check_mode, speculation_on
from edgekit.runtime.generate.prefix_cache import LIMIT_BYTES, WORTH_SAVING, PrefixCache
from edgekit.runtime.generate.prefix_files import PrefixFiles
from edgekit.runtime.generate.turns import Turns
from edgekit.tensors import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.generate.text_stream import TextStream
    from edgekit.target.decoder import DecoderRunner

CONVERSATIONS_LIMIT = 64


class PoolOptions(NamedTuple):
    """Of a ``TextSession``, which has their meaning."""

    conversations: int = 1
    kept_bytes: int = LIMIT_BYTES
    keeps_on_disk: bool = False
    speculate: str = "off"
    threads: int = 1

    def checked(self) -> PoolOptions:
        """The same. Raises UsageError: one is invalid."""
        if type(self.conversations) is not int or not 1 <= self.conversations <= CONVERSATIONS_LIMIT:
            raise UsageError(
                f"conversations must be a whole number from 1 to {CONVERSATIONS_LIMIT}, not "
                f"{self.conversations!r}"
            )
        if type(self.kept_bytes) is not int or self.kept_bytes < 0:
            raise UsageError(f"kept_bytes must be a whole number from 0, not {self.kept_bytes!r}")
        check_mode(self.speculate)
        return self


class DecoderPool:
    """Logits for the texts of a session, on the next variant where one fails. Thread-safe: texts take turns.

    Attributes:
        capacity: Tokens of a text.
        speculation: Whether texts speculate, and why.
    """

    def __init__(self, decoders: Decoders, options: PoolOptions) -> None:
        self._decoders, self._options = decoders, options
        self._turns = Turns()
        self._prefixes = PrefixCache(options.kept_bytes)
        self._caches: list[CachedDecoder] = []
        self._owners: dict[int, weakref.ref[TextStream]] = {}
        self.closed = False
        self._use(decoders.load())

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """As ``CachedDecoder.logits``; None if the stream is to stop.

        Raises:
            EngineError: no variant works, or ``strict``, and one failed.
            UsageError: the pool is closed.
        """
        with self._turns:
            while True:
                if self.closed:
                    raise closed_error()
                if stream.stops:
                    return None
                if not self._caches:
                    self._use(self._decoders.load())
                cache = self._cache_for(stream, tokens)
                before = cache.computed
                try:
                    found = cache.logits(tokens, rows, lambda: stream.stops)
                except Exception as problem:  # an engine may throw anything
                    if isinstance(problem, UsageError):
                        raise
                    self._fall_back(problem)
                else:
                    if stream.is_new:
                        stream.cached_tokens = max(0, len(tokens) - (cache.computed - before))
                    return found

    @property
    def keeps_on_disk(self) -> bool:
        """Whether ``keep`` does anything."""
        return self._files is not None

    def keep(self, tokens: list[int]) -> None:
        """Keep the cache of a text's beginning on disk, if it is still loaded and is not there."""
        with self._turns:
            if self._files is None or len(tokens) < WORTH_SAVING or self._files.common(tokens) == len(tokens):
                return
            for cache in self._caches:
                if cache.common(tokens) == len(tokens):
                    self._files.keep(tokens, cache.runner.save()[:, :, : len(tokens)])
                    return

    def facts(self) -> dict[str, Json]:
        """Facts of the loaded decoder, and of the caches."""
        with self._turns:
            return {
                **(self._caches[0].runner.facts() if self._caches else {}),
                "context": self.capacity,
                "speculation": {"on": self.speculation.on, "why": self.speculation.why},
                "caches": len(self._caches),
                "kept": len(self._prefixes),
                "kept_bytes": self._prefixes.size_bytes,
                **(
                    {"on_disk": len(self._files), "note": self._files.note} if self._files is not None else {}
                ),
            }

    def close(self) -> None:
        """Free the decoder. Closing twice is fine."""
        with self._turns:
            if not self.closed:
                self.closed = True
                self._drop_caches()
                self._prefixes.clear()
                self._decoders.close()

    def _cache_for(self, stream: TextStream, tokens: list[int]) -> CachedDecoder:
        """The stream's own cache; or one that is free, best with the beginning of its text; or a new one; or
        the one that was not used for longest."""
        free = []
        for cache in self._caches:
            reference = self._owners.get(id(cache))
            owner = reference() if reference is not None else None
            if owner is stream:
                free = [cache]
                break
            if owner is None or owner.ended:
                free.append(cache)
        if not free and len(self._caches) < self._options.conversations:
            other = self._caches[0].runner.another()
            other.row_consistent = self.speculation.on
            self._caches.append(CachedDecoder(other, self._prefixes))
            free = self._caches[-1:]
        chosen = max(free or self._caches[:1], key=lambda cache: cache.common(tokens))
        self._owners[id(chosen)] = weakref.ref(stream)
        self._caches.remove(chosen)
        self._caches.append(chosen)
        return chosen

    def _fall_back(self, problem: Exception) -> None:
        self._drop_caches()
        self._prefixes.clear()  # another variant computes others
        self._use(self._decoders.failed(problem))

    def _use(self, runner: DecoderRunner) -> None:
        options, identity = self._options, self._decoders.identity
        self.capacity: int = runner.capacity
        self._files = PrefixFiles(identity) if options.keeps_on_disk and identity else None
        self._prefixes.files = self._files
        self.speculation = speculation_on(runner, options.speculate, identity, options.threads)
        runner.row_consistent = self.speculation.on
        self._caches = [CachedDecoder(runner, self._prefixes)]

    def _drop_caches(self) -> None:
        """Free all caches but the first runner's, which the chain closes."""
        caches, self._caches = self._caches, []
        self._owners.clear()
        for cache in caches:
            if cache.runner is not self._decoders.runner:
                cache.close()


def closed_error() -> UsageError:
    """The error of a session that was closed."""
    return UsageError("the text session is closed; open a new one to generate")
