"""A draft model: a smaller decoder with the same tokens, which proposes what a large one will generate."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from edgekit.bundle.draft_entry import DraftEntry, draft_of
from edgekit.errors import EngineError
from edgekit.generate.device import decoder_registry
from edgekit.generate.device.cached_decoder import CachePool
from edgekit.generate.device.decoder import DecoderShape
from edgekit.generate.device.memory_plan import MemoryPlan, check_draft_memory, plan_memory
from edgekit.generate.device.prefix_cache import PrefixCache
from edgekit.runtime import local_timings
from edgekit.runtime.loading import unpacked_files
from edgekit.system.cpu import lacking
from edgekit.system.timings import milliseconds_of

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant
    from edgekit.generate.device.decoder import DecoderRunner
    from edgekit.generate.device.text_stream import TextStream
    from edgekit.runtime.session_state import SessionOptions


class DraftModel:
    """The draft of a decoder, with caches for concurrent texts. Not thread-safe.

    Args:
        open_runner: Loads it, with an empty cache; raises if it can't be used.
        agreement: Share, 0 to 1, of its tokens that are the large decoder's.
        identity: Identity of its artifact and the engine's version; "": its time is not stored.
        texts: Maximum number of caches.
    """

    def __init__(
        self, open_runner: Callable[[], DecoderRunner], agreement: float, identity: str = "", texts: int = 1
    ) -> None:
        self.agreement, self.identity = agreement, identity
        self._open_runner, self._texts = open_runner, texts
        self._pool: CachePool | None = None

    def load(self) -> CachePool:
        """Return its caches; load it first if it is not loaded. Raises what ``open_runner`` does."""
        if self._pool is None:
            self._pool = CachePool(self._open_runner(), PrefixCache(0), self._texts)
        return self._pool

    def measured_ms(self, history: int, rounds: int) -> float:
        """Return the time of one token after ``history`` others, in ms: the fastest of so many rounds."""
        runner, best = self.load().runner, float("inf")
        runner.truncate(0)
        runner.forward([0] * history)
        for _ in range(rounds):
            began = time.perf_counter()
            runner.forward([0])
            best = min(best, 1000 * (time.perf_counter() - began))
            runner.truncate(history)
        runner.truncate(0)
        return best

    def propose(self, stream: TextStream, tokens: list[int], limit: int) -> list[int]:
        """Return the tokens that it finds likeliest, one after the other.

        Returns:
            The proposed tokens; empty if the text is longer than its context, or is to stop.
        """
        cache = self.load().assign(stream, tokens)
        assert cache is not None
        limit = min(limit, cache.runner.capacity - len(tokens) + 1)
        proposed: list[int] = []
        while len(proposed) < limit:
            row = None
            while row is None:
                if stream.stops:
                    return []
                row = cache.read(tokens + proposed)
            proposed.append(int(row[-1].argmax()))
        return proposed

    def close(self) -> None:
        """Free the draft; ``load`` loads it again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class DraftProposer:
    """Proposer that asks a draft model."""

    def __init__(
        self, propose: Callable[[TextStream, list[int], int], list[int]], stream: TextStream
    ) -> None:
        self._propose, self._stream = propose, weakref.ref(stream)  # which refers to its proposer

    def propose(self, tokens: Sequence[int], limit: int) -> list[int]:
        """Return at most ``limit`` tokens that the draft expects next."""
        stream = self._stream()
        return [] if stream is None else self._propose(stream, list(tokens), limit)


def draft_for(
    bundle: Bundle,
    variant: Variant,
    plan: MemoryPlan,
    spare_bytes: int,
    options: SessionOptions,
    version: str,
    probe: Callable[[Variant], None] | None,
) -> DraftModel | None:
    """Return the draft for a loaded variant, or None if the bundle has no draft. It is not loaded yet.

    Args:
        spare_bytes: Free memory beside it, in bytes.
        probe: Loads a variant once in a child process, and raises EngineError; None: no probe is wanted.

    Raises:
        BundleError: the draft is malformed.
    """
    entry = draft_of(bundle.name, bundle.manifest)
    if entry is None:
        return None
    chosen = _best(bundle, entry, variant)
    if chosen is None:
        return DraftModel(partial(_refuse, variant.target), entry.agreement)
    identity = f"{local_timings.artifact(bundle, chosen)} {version}"

    def load() -> DecoderRunner:
        shape, model_shape = (
            DecoderShape.from_options(chosen.options),
            DecoderShape.from_options(variant.options),
        )
        if shape.vocabulary != model_shape.vocabulary:
            raise EngineError(f"it has {shape.vocabulary} tokens and the model {model_shape.vocabulary}")
        size_bytes = sum(bundle.size_bytes(name) for name in chosen.files.values())
        capacity = min(plan.capacity, shape.context)
        needed = plan_memory(chosen.options, size_bytes, capacity, plan.conversations, 0)
        check_draft_memory(chosen.name, needed, spare_bytes)
        if probe is not None:
            probe(chosen)
        files = unpacked_files.unpack_noted(bundle, chosen).files
        return decoder_registry.open_decoder(chosen.target, files, chosen.options, options.threads, capacity)

    return DraftModel(load, entry.agreement, identity, plan.conversations)


def _best(bundle: Bundle, entry: DraftEntry, variant: Variant) -> Variant | None:
    """Choose the draft variant of the same engine: the fastest one, or the smallest if times are unknown."""
    able = [v for v in entry.variants if v.usable and v.target == variant.target and not lacking(v.options)]

    def cost(candidate: Variant) -> tuple[bool, float, int]:
        time_ms = milliseconds_of(candidate.evidence.get("timing"))
        size_bytes = sum(bundle.size_bytes(name) for name in candidate.files.values())
        return candidate.profile != variant.profile, float("inf") if time_ms is None else time_ms, size_bytes

    return min(able, key=cost, default=None)


def _refuse(target: str) -> DecoderRunner:
    raise EngineError(f"the bundle's draft has no variant for {target}")
