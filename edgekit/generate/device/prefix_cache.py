"""KV caches of texts that were read before, in memory, found by the longest common beginning."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.generate.device.prefix_files import PrefixFiles, common_length
from edgekit.tensor_spec import Array

WORTH_SAVING = 32
"""Tokens that are saved before another text takes their place; fewer are sooner read again."""
LIMIT_BYTES = 64 << 20
"""Memory of saved caches: 1,400 tokens of SmolLM2-135M in float32."""


class _Prefix(NamedTuple):
    tokens: list[int]
    cache: Array
    adapter: str


class PrefixCache:
    """Saved caches, the most recently used last. Not thread-safe.

    Args:
        limit_bytes: Maximum size of all caches together; the least recently used are dropped first. 0 keeps
            none.

    Attributes:
        files: Caches on disk, of texts without an adapter; None: none are there.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.files: PrefixFiles | None = None
        self._entries: list[_Prefix] = []

    @property
    def size_bytes(self) -> int:
        """Return the size of all caches, in bytes."""
        return sum(entry.cache.nbytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, tokens: list[int], adapter: str = "") -> tuple[int, Array] | None:
        """Return the saved cache of an adapter with the longest beginning in common with a text.

        Returns:
            How many tokens they have in common, and the cache of those; None if no token is.
        """
        lengths = [
            common_length(entry.tokens, tokens) if entry.adapter == adapter else 0 for entry in self._entries
        ]
        on_disk = 0 if self.files is None or adapter else self.files.common(tokens)
        if self.files is not None and on_disk >= max(lengths, default=0) + WORTH_SAVING:
            read = self.files.longest(tokens)
            if read is not None:
                self.keep(*read)
                common = common_length(read[0], tokens)
                return common, read[1][:, :, :common]
        best = max(range(len(lengths)), key=lambda i: lengths[i], default=None)
        if best is None or not lengths[best]:
            return None
        self._entries.append(self._entries.pop(best))
        return lengths[best], self._entries[-1].cache[:, :, : lengths[best]]

    def keep(self, tokens: list[int], cache: Array, adapter: str = "") -> None:
        """Save a cache. It takes the place of those of the adapter whose tokens are its beginning.

        Args:
            tokens: The whole text of the cache.
            cache: Result of ``DecoderRunner.save``, [2 * layers, heads, tokens, size]; copied if it is part
                of another array.
            adapter: Name of the adapter that computed it; "": none.
        """
        entries = []
        for entry in self._entries:
            common = common_length(entry.tokens, tokens)
            if entry.adapter != adapter:
                entries.append(entry)
            elif common == len(tokens):  # it is saved already, with more after it perhaps
                entries.append(entry)
                tokens = []
            elif common < len(entry.tokens):
                entries.append(entry)
        self._entries = entries
        if not tokens or cache.nbytes > self.limit_bytes:
            return
        owned = cache.copy() if cache.base is not None else cache
        self._entries.append(_Prefix(tokens[:], owned, adapter))
        while self.size_bytes > self.limit_bytes:
            del self._entries[0]

    def clear(self) -> None:
        """Drop all: another variant computes others."""
        self._entries.clear()
