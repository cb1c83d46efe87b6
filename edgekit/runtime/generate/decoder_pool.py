"""The loaded decoder of a session with its caches: one for each text that is made in turns, as far as
allowed."""

from __future__ import annotations

import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple

from edgekit.errors import NonFiniteOutputError, UsageError, reason_of
from edgekit.runtime.generate.cached_decoder import CachedDecoder, last_used, logits_of_each
from edgekit.runtime.generate.decoder_chain import Decoders
from edgekit.runtime.generate.draft_model import DraftModel, DraftText
from edgekit.runtime.generate.measure_speculation import check_mode, speculation_on
from edgekit.runtime.generate.prefix_cache import LIMIT_BYTES, WORTH_SAVING, PrefixCache
from edgekit.runtime.generate.prefix_files import PrefixFiles
from edgekit.runtime.generate.speculation import DRAFT, LOOKUP, PromptLookup, Speculation
from edgekit.runtime.generate.turns import Turns
from edgekit.runtime.session_state import log
from edgekit.system.interrupts import pass_on
from edgekit.target.decoder import BatchRunner
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.generate.speculation import Proposer
    from edgekit.runtime.generate.text_stream import TextStream
    from edgekit.target.decoder import DecoderRunner

CONVERSATIONS_LIMIT = 64
WAIT_SHARE = 0.25
"""Of the last step's time: so long the texts of that step are waited for. Choosing a token takes far less;
who reads his text slowly costs the others this once."""


class PoolOptions(NamedTuple):
    """Options of a ``TextSession`` that its decoder pool uses; documented there."""

    conversations: int = 1
    kept_bytes: int = LIMIT_BYTES
    keeps_on_disk: bool = False
    speculate: str = "off"
    threads: int = 1

    def checked(self) -> PoolOptions:
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


@dataclass(eq=False)
class Step:
    """Request of a thread for the logits of one text.

    Attributes:
        stream: The stream of the text.
        tokens, rows: The arguments of ``CachedDecoder.logits``.
        found: The computed logits, or None.
        thread: Identifier of the requesting thread.
    """

    stream: TextStream
    tokens: list[int]
    rows: int
    found: Array | None = None
    thread: int = field(default_factory=get_ident)


class DecoderPool:
    """Logits for the texts of a session, on the next variant where one fails. Thread-safe: texts take turns,
    and where the engine computes a token of several texts in one step, those that wait are computed along.

    Attributes:
        capacity: Tokens of a text.
        batches: Whether texts are computed together.
        speculation: Whether texts speculate, and why.
    """

    def __init__(self, decoders: Decoders, options: PoolOptions) -> None:
        self._decoders, self._options = decoders, options
        self._turns: Turns[Step] = Turns()
        self._last: list[Step] = []
        self._step_s = 0.0
        self._batched = self._batched_tokens = 0
        self._prefixes = PrefixCache(options.kept_bytes)
        self._caches: list[CachedDecoder] = []
        self._loaded: DecoderRunner | None = None
        self._owners: dict[int, weakref.ref[TextStream]] = {}
        self.closed = self.lost = False
        self._draft: DraftModel | None = None
        self.speculation = Speculation()
        self._use(decoders.load())

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """Compute logits like ``CachedDecoder.logits``; None if the stream is to stop.

        Raises:
            EngineError: no variant works, or ``strict``, and one failed.
            UsageError: the pool is closed.
        """
        step = Step(stream, tokens, rows)
        if not self._turns.ask(step):  # whoever had the turn has done it
            return step.found
        try:
            return self._logits(step)
        finally:
            self._turns.leave()

    def _logits(self, step: Step) -> Array | None:
        stream, tokens = step.stream, step.tokens
        while True:
            if self.closed or self.lost:
                raise self.unusable()
            if stream.stops:
                return None
            if stream.is_new and not self._busy(stream):
                self._decoders.recovers()
            if self._loaded is None or self._loaded is not self._decoders.runner:
                self._use(self._decoders.load())
            cache = self._cache_for(stream, tokens)
            before = cache.computed
            try:
                if self.batches and step.rows == 1 and cache.lacks_one(tokens):
                    self._together(step, cache)
                    found = step.found
                else:
                    found = cache.logits(tokens, step.rows, partial(self._between, stream))
            except Exception as problem:  # an engine may throw anything
                pass_on(problem)
                if isinstance(problem, UsageError):
                    raise
                if self._decoders.is_input_at_fault(problem, cache.compute_known):
                    raise NonFiniteOutputError(
                        f"{self._decoders.active.variant}: {reason_of(problem)}; it computes other texts, so "
                        "this one is at fault"
                    ) from None
                self._fall_back(problem)
            else:
                if stream.is_new:
                    stream.cached_tokens = max(0, len(tokens) - (cache.computed - before))
                return found

    def _between(self, stream: TextStream) -> bool:
        """Run between two steps of a prompt: each text that waits for a token gets it, so that a long prompt
        does not block them. Return whether the prompt's own text is to stop."""
        if self.batches and (ready := self._ready([])):
            with suppress(NonFiniteOutputError):  # of a text that waits, which computes it alone in its turn
                self._run_each(ready)
        return stream.stops

    def _together(self, own: Step, cache: CachedDecoder) -> None:
        """Compute a token of this text, batched with waiting texts. Those of the previous step usually return
        soon, so wait up to WAIT_SHARE of a step for them; not for texts of this thread, which runs them one
        after the other."""
        others = [step for step in self._last if step.thread != own.thread]
        due = {id(step.stream) for step in others if not step.stream.ended} - {id(own.stream)}

        def enough(waiting: list[Step]) -> bool:
            return due <= {id(step.stream) for step in waiting}

        self._turns.wishes(enough, WAIT_SHARE * self._step_s)
        try:
            self._run_each([(own, cache), *self._ready([own])])
        except NonFiniteOutputError:  # another text of the step may be the cause
            own.found = cache.logits(own.tokens)

    def _ready(self, known: list[Step]) -> list[tuple[Step, CachedDecoder]]:
        """Return the waiting steps that lack one token of their cache; release those that are to stop."""
        ready = []
        for step in self._turns.wishes():
            if step.stream.stops:
                self._turns.fulfilled(step)
            elif step.rows == 1 and step not in known:
                cache = self._own_cache(step.stream)
                if cache is not None and cache.lacks_one(step.tokens):
                    ready.append((step, cache))
        return ready

    def _run_each(self, ready: list[tuple[Step, CachedDecoder]]) -> None:
        steps = [step for step, _ in ready]
        began_s = time.monotonic()
        found = logits_of_each([cache for _, cache in ready], [step.tokens for step in steps])
        self._step_s, self._last = time.monotonic() - began_s, steps
        self._batched += len(steps) > 1
        self._batched_tokens += len(steps) if len(steps) > 1 else 0
        for step, row in zip(steps, found, strict=True):
            step.found = row[None]
            self._turns.fulfilled(step)

    def proposer(self) -> Proposer | None:
        """Return the proposer of a new text, or None without speculation."""
        if not self.speculation.on:
            return None
        return PromptLookup() if self.speculation.by == LOOKUP else DraftText(self._propose)

    def _propose(self, text: DraftText, tokens: list[int], most: int) -> list[int]:
        """Return the draft's proposed tokens. A draft that fails is freed; the text continues without it."""
        with self._turns:
            if self._draft is None or self.closed or self.lost:
                return []
            try:
                return self._draft.propose(text, tokens, most)
            except Exception as problem:  # an engine may throw anything
                pass_on(problem)
                self._drop_draft()
                why = f"the draft failed: {reason_of(problem)}"
                self.speculation = self.speculation._replace(on=False, why=why)
                log().warning("%s", why)
                return []

    @property
    def keeps_on_disk(self) -> bool:
        """Return whether caches are kept on disk; otherwise ``keep`` does nothing."""
        return self._files is not None

    def keep(self, tokens: list[int]) -> None:
        """Save the cache of a text's beginning to disk, if it is still loaded and not saved yet."""
        with self._turns:
            if self._files is None or len(tokens) < WORTH_SAVING or self._files.common(tokens) == len(tokens):
                return
            for cache in self._caches:
                if cache.common(tokens) == len(tokens):
                    self._files.keep(tokens, cache.runner.save()[:, :, : len(tokens)])
                    return

    def facts(self) -> dict[str, Json]:
        """Return facts of the loaded decoder, and of the caches."""
        with self._turns:
            return {
                **(self._caches[0].runner.facts() if self._caches else {}),
                "context": self.capacity,
                "speculation": self.speculation.as_json(),
                "together": {"on": self.batches, "steps": self._batched, "tokens": self._batched_tokens},
                "caches": len(self._caches),
                "kept": len(self._prefixes),
                "kept_bytes": self._prefixes.size_bytes,
                **(
                    {"on_disk": len(self._files), "note": self._files.note} if self._files is not None else {}
                ),
            }

    def forked(self, lost: bool) -> list[object]:
        """Replace the locks in a forked process.

        Args:
            lost: Whether the engine's threads stayed in the parent; then no text can be generated here.

        Returns:
            Objects that must not be freed here.
        """
        kept: list[object] = [self._turns, self._caches, self._decoders, self._draft]
        self.lost = lost or self._turns.held
        self._turns, self._last = Turns(), []
        if self.lost:
            self._caches, self._draft = [], None
        return kept if self.lost else []

    def close(self) -> None:
        """Free the decoder. Closing twice is fine."""
        if self.lost:
            self.closed = True
            return
        with self._turns:
            if not self.closed:
                self.closed = True
                self._drop_draft()
                self._drop_caches()
                self._prefixes.clear()
                self._decoders.close()

    def unusable(self) -> UsageError:
        """Return the error of a closed session, or one whose engine's threads stayed in another process."""
        if not self.lost:
            return UsageError("the text session is closed; open a new one to generate")
        return UsageError(
            "the text session was opened before os.fork(), and its threads stayed in the parent process: open"
            " one in each process, after the fork, or begin processes with multiprocessing's 'spawn'"
        )

    def _cache_for(self, stream: TextStream, tokens: list[int]) -> CachedDecoder:
        """Return the cache for a stream: its own, else a free one that shares most of its text, else a new
        one, else the least recently used one."""
        own = self._own_cache(stream)
        owners = {id(cache): self._owner(cache) for cache in self._caches}
        free = [cache for cache in self._caches if (owner := owners[id(cache)]) is None or owner.ended]
        free = free if own is None else [own]
        if not free and len(self._caches) < self._options.conversations:
            other = self._caches[0].runner.another()
            other.row_consistent = self._caches[0].runner.row_consistent
            self._caches.append(CachedDecoder(other, self._prefixes))
            free = self._caches[-1:]
        chosen = max(free or self._caches[:1], key=lambda cache: cache.common(tokens))
        self._owners[id(chosen)] = weakref.ref(stream)
        self._caches = last_used(self._caches, chosen)
        return chosen

    def _owner(self, cache: CachedDecoder) -> TextStream | None:
        reference = self._owners.get(id(cache))
        return None if reference is None else reference()

    def _busy(self, stream: TextStream) -> bool:
        """Return whether another text is being generated."""
        owners = [self._owner(cache) for cache in self._caches]
        return any(owner is not None and owner is not stream and not owner.ended for owner in owners)

    def _own_cache(self, stream: TextStream) -> CachedDecoder | None:
        return next((cache for cache in self._caches if self._owner(cache) is stream), None)

    def _fall_back(self, problem: Exception) -> None:
        self._drop_caches()
        self._use(self._decoders.failed(problem))

    def _use(self, runner: DecoderRunner) -> None:
        """Switch to a decoder. If an interrupt ends this, the next text starts it again."""
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
            self._draft = draft if self.speculation.on and self.speculation.by == DRAFT else None
        runner.row_consistent = self.batches or self.speculation.on
        self._caches = [CachedDecoder(runner, self._prefixes)]
        self._loaded = runner

    def _drop_draft(self) -> None:
        draft, self._draft = self._draft, None
        if draft is not None:
            try:
                draft.close()
            except Exception as problem:  # it is no longer needed
                pass_on(problem)
                log().warning("the draft did not close: %s", type(problem).__name__)

    def _drop_caches(self) -> None:
        """Free all caches but the loaded runner's, which the chain closes."""
        loaded, self._loaded = self._loaded, None
        caches, self._caches = self._caches, []
        self._owners.clear()
        self._last = []
        for cache in caches:
            if cache.runner is not loaded:
                cache.close()
