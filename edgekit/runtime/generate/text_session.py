"""A text session: one bundle with a language model opened, its best variant loaded, texts made with it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgeKitError, UsageError
from edgekit.runtime.generate.async_stream import AsyncTextStream
from edgekit.runtime.generate.cached_decoder import CachedDecoder
from edgekit.runtime.generate.chat_template import chat_tokens, checked_messages
from edgekit.runtime.generate.decoder_chain import Decoders, OneDecoder
from edgekit.runtime.generate.guidance import GuideMaker
from edgekit.runtime.generate.measure_speculation import check_mode, speculation_on
from edgekit.runtime.generate.options import GenerateOptions, checked_options
from edgekit.runtime.generate.prefix_cache import LIMIT_BYTES, PrefixCache
from edgekit.runtime.generate.speculation import PromptLookup
from edgekit.runtime.generate.template_sandbox import Render, compile_template
from edgekit.runtime.generate.text_parts import TextParts
from edgekit.runtime.generate.text_stream import TextStream
from edgekit.runtime.generate.text_tokens import TextTokenizer, check_length
from edgekit.runtime.generate.turns import Turns
from edgekit.runtime.session_state import Active
from edgekit.tensors import Array, Json

if TYPE_CHECKING:
    from edgekit.runtime.fallback.policy import Fallback
    from edgekit.runtime.generate.generated_text import GeneratedText
    from edgekit.runtime.metrics.text_metrics import TextMetrics
    from edgekit.target.decoder import DecoderRunner

CONVERSATIONS_LIMIT = 64


class TextSession:
    """Makes texts with a language model. Thread-safe: concurrent generations take turns, token by token.

        with TextSession.of_parts(runner, parts) as session:
            for piece in session.generate("Once upon a time", max_tokens=64):
                print(piece, end="", flush=True)

    A text has at most ``context`` tokens, its prompt and its answer together: what is longer ends there, with
    the reason ``context``. The window does not slide.
    """

    @classmethod
    def of_parts(
        cls,
        runner: DecoderRunner,
        parts: TextParts,
        *,
        name: str = "decoder",
        identity: str = "",
        conversations: int = 1,
        kept_bytes: int = LIMIT_BYTES,
        speculate: str = "off",
        metrics: TextMetrics | None = None,
    ) -> TextSession:
        """A session on a decoder that was loaded elsewhere; ``close`` closes it.

        Args:
            runner: Loaded, its cache empty.
            parts: Tokenizer, template and ids that end a text.
            name: Of the decoder, in ``active``.
            identity: What caches on disk belong to: another model must have another. "": none are kept there.
            conversations: Texts that are made in turns each with a cache of its own; further ones share them.
            kept_bytes: Most memory of caches of texts that were read before.
            speculate: Speculative decoding by prompt lookup: ``auto``, where that was measured to be faster
            on
                this device, ``lookup``, in any case, or ``off``. With it the rows of a step agree whatever
                their number (``DecoderRunner.row_consistent``), and the text is the same.
            metrics: Told of each text that has ended.

        Raises:
            UsageError: an option is invalid.
            CardError: the tokenizer can't be used.
            MissingDependency: the package ``tokenizers`` is not installed.
        """
        _check_limits(conversations, kept_bytes)
        session = cls.__new__(cls)
        decoders = OneDecoder(runner, name, identity)
        session._begin(decoders, parts, conversations, kept_bytes, check_mode(speculate), metrics)
        return session

    def _begin(
        self,
        decoders: Decoders,
        parts: TextParts,
        conversations: int,
        kept_bytes: int,
        speculate: str,
        metrics: TextMetrics | None,
        threads: int = 1,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._decoders, self._parts, self._close = decoders, parts, close
        self.conversations = conversations
        self.tokenizer = TextTokenizer(parts.tokenizer)
        self.stop_ids: frozenset[int] = frozenset(parts.stop_ids)
        self._turns = Turns()
        self._prefixes = PrefixCache(kept_bytes)
        self._caches: list[CachedDecoder] = []
        self._owners: dict[int, weakref.ref[TextStream]] = {}
        self._closed = False
        self._speculate, self._metrics, self._threads = speculate, metrics, threads
        self._guides = GuideMaker(parts.tokenizer, self.stop_ids)
        self._render: Render | None = None
        self._use(decoders.load())

    # --- making text -------------------------------------------------------------------------------------

    def generate(self, prompt: str, **options: Any) -> TextStream:
        """A text that goes on where ``prompt`` ends.

        Args:
            prompt: Read as it is: the texts of special tokens are these tokens.
            options: See ``GenerateOptions``.

        Returns:
            An iterator over pieces of the text; nothing is computed before its first ``next``.

        Raises:
            UsageError: an option is invalid, or the prompt does not fit into the context.
            MissingDependency: a package is not installed that an option needs.
        """
        began_s = time.monotonic()
        checked = checked_options(options)
        check_length(prompt, self.capacity)
        return self._stream(self.tokenizer.encode(prompt), checked, began_s)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> TextStream:
        """The assistant's answer to a chat, by the model's template.

            session.chat([{"role": "user", "content": "What is a capacitor?"}], max_tokens=100)

        Args:
            messages: Each with ``role`` (``system``, ``user`` or ``assistant``) and ``content``. The texts of
                special tokens in them are texts.
            options: See ``GenerateOptions``.

        Returns:
            As ``generate``.

        Raises:
            UsageError: as ``generate``; the model has no template, or its template refuses these messages.
            CardError: the template is invalid, or goes beyond its bounds.
            MissingDependency: the package jinja2 is not installed.
        """
        began_s = time.monotonic()
        checked = checked_options(options)
        found = checked_messages(messages, self.capacity)
        parts = self._parts
        if not parts.template:
            raise UsageError("the model has no template of a chat; give a text to generate")
        if self._render is None:
            self._render = compile_template(parts.template)
        variables = {"bos_token": parts.bos, "eos_token": parts.eos}
        return self._stream(chat_tokens(self._render, variables, self.tokenizer, found), checked, began_s)

    def agenerate(self, prompt: str, **options: Any) -> AsyncTextStream:
        """As ``generate``, for ``async for``; what it raises, the first piece does."""
        return AsyncTextStream(lambda: self.generate(prompt, **options))

    def achat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> AsyncTextStream:
        """As ``chat``, for ``async for``; what it raises, the first piece does."""
        return AsyncTextStream(lambda: self.chat(messages, **options))

    def _stream(self, prompt: list[int], options: GenerateOptions, began_s: float) -> TextStream:
        if self._closed:
            raise _closed()
        if not prompt:
            raise UsageError("the prompt has no tokens; give at least one character")
        if len(prompt) > self.capacity:
            raise UsageError(
                f"the prompt has {len(prompt)} tokens, and the context is {self.capacity}: shorten it, or "
                "open the session with a larger context"
            )
        return TextStream(
            self,
            prompt,
            options,
            guide=self._guides.guide(options),
            proposer=PromptLookup() if self._speculation.on else None,
            speculation=self._speculation,
            began_s=began_s,
        )

    # --- what ran ----------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Tokens of a text, its prompt included."""
        return self._capacity

    @property
    def active(self) -> Active:
        """The active variant."""
        return self._decoders.active

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The fallbacks that led to the active variant; empty if it is the best one."""
        return self._decoders.fallbacks

    @property
    def history(self) -> tuple[Fallback, ...]:
        """The last 100 changes of the active variant."""
        return self._decoders.history

    def facts(self) -> Mapping[str, Json]:
        """Facts of the loaded decoder, and of the caches."""
        with self._turns:
            found = self._caches[0].runner.facts() if self._caches else {}
            return {
                **found,
                "context": self.capacity,
                "speculation": {"on": self._speculation.on, "why": self._speculation.why},
                "caches": len(self._caches),
                "kept": len(self._prefixes),
                "kept_bytes": self._prefixes.size_bytes,
            }

    def close(self) -> None:
        """Free the decoder, and the bundle if it was opened here. Generations that go on end with an
        error."""
        with self._turns:
            if not self._closed:
                self._closed = True
                self._drop_caches()
                self._prefixes.clear()
                self._decoders.close()
                self._close()

    def __enter__(self) -> TextSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TextSession: {self.active.variant} on {self.active.engine}>"

    # --- for its streams ---------------------------------------------------------------------------------

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """As ``CachedDecoder.logits``, on the next variant where one fails; None if the stream is to stop."""
        with self._turns:
            while True:
                if self._closed:
                    raise _closed()
                if stream.stops:
                    return None
                if not self._caches:
                    self._use(self._decoders.load())
                cache = self._cache_for(stream, tokens)
                before = cache.computed
                try:
                    found = cache.logits(tokens, rows, lambda: stream.stops)
                except EdgeKitError as problem:
                    if isinstance(problem, UsageError):
                        raise
                    self._fall_back(problem)
                except Exception as problem:  # an engine may throw anything
                    self._fall_back(problem)
                else:
                    if stream.is_new:
                        stream.cached_tokens = max(0, len(tokens) - (cache.computed - before))
                    return found

    def ended(self, stream: TextStream, result: GeneratedText) -> None:
        """A stream has ended."""
        if self._metrics is not None:
            self._metrics.ended(result, self.active, self.history)

    def _cache_for(self, stream: TextStream, tokens: list[int]) -> CachedDecoder:
        """The stream's own cache, or one that is free, best with the beginning of its text, or a new one, or
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
        if not free and len(self._caches) < self.conversations:
            other = self._caches[0].runner.another()
            other.row_consistent = self._speculation.on
            self._caches.append(CachedDecoder(other, self._prefixes))
            free = self._caches[-1:]
        chosen = max(free or self._caches[:1], key=lambda cache: cache.common(tokens))
        self._owners[id(chosen)] = weakref.ref(stream)
        self._caches.remove(chosen)
        self._caches.append(chosen)
        return chosen

    def _fall_back(self, problem: Exception) -> None:
        self._drop_caches()
        self._prefixes.clear()
        self._use(self._decoders.failed(problem))

    def _use(self, runner: DecoderRunner) -> None:
        self._capacity = runner.capacity
        self._speculation = speculation_on(runner, self._speculate, self._decoders.identity, self._threads)
        runner.row_consistent = self._speculation.on
        self._caches = [CachedDecoder(runner, self._prefixes)]

    def _drop_caches(self) -> None:
        """Free all caches but the first runner's, which the chain closes."""
        caches, self._caches = self._caches, []
        self._owners.clear()
        for cache in caches:
            if cache.runner is not self._decoders.runner:
                cache.close()


def _check_limits(conversations: int, kept_bytes: int) -> None:
    if not isinstance(conversations, int) or not 1 <= conversations <= CONVERSATIONS_LIMIT:
        raise UsageError(
            f"conversations must be a whole number from 1 to {CONVERSATIONS_LIMIT}, not {conversations!r}"
        )
    if not isinstance(kept_bytes, int) or kept_bytes < 0:
        raise UsageError(f"kept_bytes must be a whole number from 0, not {kept_bytes!r}")


def _closed() -> UsageError:
    return UsageError("the text session is closed; open a new one to generate")
