"""The decoder that a text session has loaded, with its caches, its saved prefixes and its draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import NonFiniteOutputError, UsageError, reason_of
from edgekit.generate.device.cached_decoder import CachedDecoder, CachePool
from edgekit.generate.device.decoder import BatchRunner
from edgekit.generate.device.decoder_chain import DecoderChain, OneDecoder
from edgekit.generate.device.draft_model import DraftModel
from edgekit.generate.device.measure_speculation import check_mode, speculation_on
from edgekit.generate.device.prefix_cache import LIMIT_BYTES, WORTH_SAVING, PrefixCache
from edgekit.generate.device.prefix_files import PrefixFiles
from edgekit.generate.device.speculation import DRAFT, LOOKUP, Speculation
from edgekit.runtime.session_state import log
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.generate.device.decoder import DecoderRunner
    from edgekit.generate.device.text_stream import TextStream

CONVERSATIONS_LIMIT = 64


class DecoderOptions(NamedTuple):
    """Options of a ``TextSession`` that concern its decoder; documented there."""

    conversations: int = 1
    kept_bytes: int = LIMIT_BYTES
    keeps_on_disk: bool = False
    speculate: str = "off"
    threads: int = 1

    def checked(self) -> DecoderOptions:
        """Return the options if all are valid. Raises UsageError: one is invalid."""
        if type(self.conversations) is not int or not 1 <= self.conversations <= CONVERSATIONS_LIMIT:
            raise UsageError(
                f"conversations must be a whole number from 1 to {CONVERSATIONS_LIMIT}, not "
                f"{self.conversations!r}"
            )
        if type(self.kept_bytes) is not int or self.kept_bytes < 0:
            raise UsageError(f"kept_bytes must be a whole number from 0, not {self.kept_bytes!r}")
        check_mode(self.speculate)
        return self


class LoadedDecoder:
    """A decoder, the next one if it fails, and what belongs to the loaded one. Used by one thread at a time.

    Attributes:
        capacity: Maximum tokens of a text.
        batches: Whether the engine computes the next tokens of several texts in one step.
        speculation: Whether texts speculate, and why.
        pool: Caches of the loaded decoder; None: none is loaded.
    """

    def __init__(self, decoders: OneDecoder | DecoderChain, options: DecoderOptions) -> None:
        self._decoders, self._options = decoders, options
        self._prefixes = PrefixCache(options.kept_bytes)
        self._draft: DraftModel | None = None
        self.pool: CachePool | None = None
        self.speculation = Speculation()
        self._use(decoders.load())

    def begin(self, stream: TextStream) -> None:
        """Free the decoder if a better variant is due for a retry, and ``stream`` is the only text."""
        if stream.is_new and not (self.pool is not None and self.pool.is_used_by_another(stream)):
            self._decoders.recovers()

    def load(self) -> CachePool:
        """Return the caches; load a decoder first if none is loaded.

        Raises:
            NoVariantError, EngineError: no variant works.
        """
        if self.pool is None or self.pool.runner is not self._decoders.runner:
            self._use(self._decoders.load())
        assert self.pool is not None
        return self.pool

    def fall_back(self, problem: Exception, cache: CachedDecoder) -> None:
        """Load the next variant after ``problem`` of the loaded one.

        Raises:
            NonFiniteOutputError: the text is at fault, since ``cache`` computes another one.
            NoVariantError: no variant is left.
            EngineError: strict, or there is no other variant.
        """
        if self._decoders.is_input_at_fault(problem, cache.compute_known):
            raise NonFiniteOutputError(
                f"{self._decoders.active.variant}: {reason_of(problem)}; it computes other texts, so "
                "this one is at fault"
            ) from None
        self._drop_caches()
        self._use(self._decoders.failed(problem))

    def propose(self, stream: TextStream, tokens: list[int], limit: int) -> list[int]:
        """Return the draft's proposed tokens. A draft that fails is freed; the text continues without it."""
        if self._draft is None:
            return []
        try:
            return self._draft.propose(stream, tokens, limit)
        except Exception as problem:  # an engine may throw anything
            self._drop_draft()
            reason = f"the draft failed: {reason_of(problem)}"
            self.speculation = self.speculation._replace(on=False, reason=reason)
            log().warning("%s", reason)
            return []

    @property
    def keeps_on_disk(self) -> bool:
        """Return whether caches are kept on disk; otherwise ``keep`` does nothing."""
        return self._files is not None

    def keep(self, tokens: list[int]) -> None:
        """Save the cache of a text's beginning to disk, if it is still loaded and not saved yet."""
        if self._files is None or len(tokens) < WORTH_SAVING or self._files.common(tokens) == len(tokens):
            return
        cache = None if self.pool is None else self.pool.holding(tokens)
        if cache is not None:
            self._files.keep(tokens, cache.runner.save()[:, :, : len(tokens)])

    def facts(self) -> dict[str, Json]:
        """Return facts of the loaded decoder, and of the caches."""
        pool, files = self.pool, self._files
        return {
            **(pool.runner.facts() if pool else {}),
            "context": self.capacity,
            "speculation": self.speculation.as_json(),
            "caches": len(pool) if pool else 0,
            "kept": len(self._prefixes),
            "kept_bytes": self._prefixes.size_bytes,
            **({"on_disk": len(files), "note": files.note} if files is not None else {}),
        }

    def close(self) -> None:
        """Free the decoder. Closing twice is fine."""
        self._drop_draft()
        self._drop_caches()
        self._prefixes.clear()
        self._decoders.close()

    def _use(self, runner: DecoderRunner) -> None:
        """Switch to a decoder. If this fails, the next request starts it again."""
        self._drop_caches()
        self._prefixes.clear()  # another variant computes others
        options, identity = self._options, self._decoders.identity
        self.capacity: int = runner.capacity
        self._files = PrefixFiles(identity) if options.keeps_on_disk and identity else None
        self._prefixes.files = self._files
        self.batches = (
            options.conversations > 1
            and options.speculate not in (LOOKUP, DRAFT)
            and isinstance(runner, BatchRunner)
        )
        self._drop_draft()
        if self.batches:
            self.speculation = Speculation(False, "texts are computed together instead")
        else:
            draft = self._decoders.draft() if options.speculate in ("auto", DRAFT) else None
            self.speculation = speculation_on(runner, options.speculate, identity, options.threads, draft)
            self._draft = draft if self.speculation.on and self.speculation.proposer == DRAFT else None
        runner.row_consistent = self.speculation.pads
        self.pool = CachePool(runner, self._prefixes, options.conversations, self._decoders.matrices_of)

    def _drop_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            try:
                draft.close()
            except Exception as problem:  # it is no longer needed
                log().warning("the draft did not close: %s", type(problem).__name__)

    def _drop_caches(self) -> None:
        """Free all caches but the decoder's own, which the chain closes."""
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close(keeps_first=True)
