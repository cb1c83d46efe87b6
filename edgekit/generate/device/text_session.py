"""A text session: one bundle with a language model opened, its best variant loaded, texts made with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import ContextLengthError, UsageError
from edgekit.generate.device.async_stream import AsyncTextStream
from edgekit.generate.device.chat_template import chat_tokens, check_tools, checked_messages
from edgekit.generate.device.decoder_chain import DecoderChain, OneDecoder
from edgekit.generate.device.draft_model import DraftProposer
from edgekit.generate.device.guidance import GuideMaker
from edgekit.generate.device.loaded_decoder import DecoderOptions, LoadedDecoder
from edgekit.generate.device.options import GenerateOptions, checked_options
from edgekit.generate.device.prefix_cache import LIMIT_BYTES
from edgekit.generate.device.prefix_files import common_length
from edgekit.generate.device.scheduler import Scheduler
from edgekit.generate.device.speculation import LOOKUP, PromptLookup
from edgekit.generate.device.template_sandbox import Render, compile_template
from edgekit.generate.device.text_stream import TextStream
from edgekit.generate.device.text_tokens import TextParts, TextTokenizer, check_length, parts_of
from edgekit.runtime.session_state import Active, SessionOptions, States
from edgekit.system.closing import Closing
from edgekit.system.cpu import allowed_threads, default_threads
from edgekit.system.declared_options import passing_options
from edgekit.system.forked import tell_of_fork
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.generate.device.decoder import DecoderRunner
    from edgekit.generate.device.generated_text import GeneratedText
    from edgekit.generate.device.text_metrics import TextMetrics
    from edgekit.runtime.fallback.policy import Fallback


def _nothing() -> None:
    """Do nothing on close."""


class TextSession(Closing):
    """Text generation with a language model. Thread-safe: concurrent texts take turns, token by token.

        with TextSession("chat.edgekit") as session:
            for piece in session.generate("Once upon a time", max_tokens=64):
                print(piece, end="", flush=True)

    A text has at most ``context`` tokens, its prompt and its answer together. A longer one ends there, with
    the reason ``context``. The window does not slide.

    Variants are selected and fall back like those of a ``Session``. If an engine fails in the middle of a
    text, the next variant reads the text so far and continues. The failed variant is retried after a
    cooldown, when a text begins and no other is being generated.

    A forked process can use a session with one thread. Any other session raises an error there.

    Args:
        bundle: A path, or an open bundle, which is not closed.
        engine, variant, strict, threads, probe: The arguments of ``Session``.
        context: Maximum tokens of a text; None: the number in the bundle's card. Each takes cache memory.
        conversations: Number of concurrent texts that each have their own cache; further ones share them, and
            recompute evicted tokens.
        kept_bytes: Maximum memory of caches of earlier texts, in bytes.
        keeps_on_disk: Whether caches of system prompts are kept on disk; see ``of_parts``.
        speculate: Mode of speculative decoding; see ``of_parts``.
        metrics: Metrics that count each text that has ended.
        on_state: The argument of ``Session``.

    Raises:
        BundleError: the bundle cannot be opened.
        CardError: its card, its tokenizer or its template is malformed.
        UsageError: it is not a language model, or an option is invalid.
        NoVariantError: no variant works here, e.g. because it needs more memory than is free.
        MissingDependency: the package ``tokenizers`` is not installed; or ``strict``, and the engine is not.
        EngineError: ``strict``, and the first variant did not load.
    """

    bundle: Bundle | None = None
    """The bundle; None: the session was created from parts."""

    def __init__(
        self,
        bundle: str | os.PathLike[str] | Bundle,
        *,
        engine: str | None = None,
        variant: str | None = None,
        strict: bool = False,
        threads: int | None = None,
        probe: bool = False,
        context: int | None = None,
        conversations: int = 1,
        kept_bytes: int = LIMIT_BYTES,
        keeps_on_disk: bool = False,
        speculate: str = "auto",
        metrics: TextMetrics | None = None,
        on_state: Callable[[str, str], None] | None = None,
    ) -> None:
        count = default_threads() if threads is None else allowed_threads(threads)
        checked = DecoderOptions(conversations, kept_bytes, keeps_on_disk, speculate, count).checked()
        opened = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        close = _nothing if isinstance(bundle, Bundle) else opened.close
        try:
            parts = parts_of(opened)
            options = SessionOptions(engine, variant, strict, count, probe)
            context = parts.context if context is None else context
            decoders = DecoderChain(opened, options, context, conversations, kept_bytes, States(on_state))
            self.bundle = opened
            self._begin(decoders, parts, checked, metrics, close)
        except BaseException:
            close()
            raise

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
        keeps_on_disk: bool = False,
        speculate: str = "off",
        metrics: TextMetrics | None = None,
    ) -> TextSession:
        """Create a session on a decoder that was loaded elsewhere; ``close`` closes it.

        Args:
            runner: Loaded, its cache empty.
            parts: Tokenizer, template and ids that end a text.
            name: Name of the decoder, in ``active``.
            identity: Identity of the model, for caches on disk; unique to it. "": none are kept there.
            conversations: Number of concurrent texts that each have their own cache; further ones share them.
            kept_bytes: Maximum memory of caches of earlier texts, in bytes.
            keeps_on_disk: Whether caches of system prompts and of ``remember`` are kept in EdgeKit's cache
                folder, up to 256 MB. They reveal the prompt.
            speculate: Speculative decoding, by the bundle's draft or by prompt lookup: ``auto``, if that
                was measured to be faster on this device and to give the logits of single steps, bit for bit;
                ``draft`` or ``lookup``, always, or ``off``. With ``draft`` and ``lookup`` the logits may be
                rounded differently, and a text may differ. A draft that can't be loaded is left out:
                ``facts`` has the reason.
            metrics: Metrics that count each text that has ended.

        Raises:
            UsageError: an option is invalid.
            CardError: the tokenizer can't be used.
            MissingDependency: the package ``tokenizers`` is not installed.
        """
        options = DecoderOptions(conversations, kept_bytes, keeps_on_disk, speculate).checked()
        session = cls.__new__(cls)
        session._begin(OneDecoder(runner, name, identity), parts, options, metrics, _nothing)
        return session

    def _begin(
        self,
        decoders: OneDecoder | DecoderChain,
        parts: TextParts,
        options: DecoderOptions,
        metrics: TextMetrics | None,
        close: Callable[[], None],
    ) -> None:
        self._decoders, self._parts, self._metrics, self._close = decoders, parts, metrics, close
        self._render: Render | None = None
        try:
            self.tokenizer = TextTokenizer(parts.tokenizer)
            self.stop_ids: frozenset[int] = frozenset(parts.stop_ids)
            self._guides = GuideMaker(parts.tokenizer, self.stop_ids)
            self._scheduler = Scheduler(LoadedDecoder(decoders, options))
            self._threads = options.threads
        except BaseException:
            decoders.close()
            raise
        tell_of_fork(self)

    # --- making text -------------------------------------------------------------------------------------

    @passing_options(GenerateOptions)
    def generate(self, prompt: str, **options: Any) -> TextStream:
        """Generate a text that continues ``prompt``.

        Args:
            prompt: Read as it is: the texts of special tokens are these tokens.
            options: Fields of ``GenerateOptions``.

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

    @passing_options(GenerateOptions)
    def predict(self, prompt: str, **options: Any) -> GeneratedText:
        """Generate a continuation of the prompt, and return it when it has ended.

        Args:
            prompt: Text to continue, as in ``generate``.
            options: Fields of ``GenerateOptions``.

        Raises:
            UsageError, EngineError: as ``generate``.
        """
        stream = self.generate(prompt, **options)
        stream.text()
        return stream.result

    @passing_options(GenerateOptions)
    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        begin: str = "",
        **options: Any,
    ) -> TextStream:
        """Generate the assistant's answer to a chat, with the model's template.

            session.chat([{"role": "user", "content": "What is a capacitor?"}], max_tokens=100)

        Args:
            messages: Each with ``role`` (``system``, ``user`` or ``assistant``) and ``content``. The texts of
                special tokens in them are texts.
            tools: Functions that the model may call, for a template that lists them.
            begin: Text with which the answer begins, and which is not part of the result.
            options: Fields of ``GenerateOptions``.

        Returns:
            As ``generate``.

        Raises:
            UsageError: as ``generate``; the model has no template, or its template refuses these messages.
            CardError: the template is invalid, or goes beyond its bounds.
            MissingDependency: the package jinja2 is not installed.
        """
        began_s = time.monotonic()
        checked = checked_options(options)
        chat = checked_messages(messages, self.capacity)
        check_tools(tools, self.capacity)
        if not self.template:
            raise UsageError("the model has no template of a chat; give a text to generate")
        if self._render is None:
            self._render = compile_template(self.template)
        tokens = self._chat_tokens(chat, tools, begin)
        stream = self._stream(tokens, checked, began_s)
        if self._scheduler.decoder.keeps_on_disk and chat[0]["role"] == "system":
            # What another question would have in common with this one.
            other = [chat[0], {"role": "user", "content": "?"}]
            stream.prefix_tokens = common_length(tokens, self._chat_tokens(other, tools))
        return stream

    def remember(self, prompt: str) -> None:
        """Read the beginning of later texts now; keep its cache on disk too if the session does that.

        Raises:
            UsageError: as ``generate``.
            EngineError: no variant works.
        """
        stream = self.generate(prompt, max_tokens=1)
        stream.prefix_tokens = len(stream.tokens)
        stream.text()

    def _chat_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], begin: str = ""
    ) -> list[int]:
        assert self._render is not None
        parts, text_of = self._parts, self.tokenizer.text_of
        eos = text_of(parts.stop_ids[0]) if parts.stop_ids else ""
        variables = {"bos_token": text_of(parts.bos_id), "eos_token": eos}
        return chat_tokens(self._render, variables, self.tokenizer, messages, tools, begin)

    def agenerate(self, prompt: str, **options: Any) -> AsyncTextStream:
        """Generate like ``generate``, for ``async for``; errors are raised at the first piece."""
        return AsyncTextStream(lambda: self.generate(prompt, **options))

    def achat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> AsyncTextStream:
        """Return a stream for ``async for``, with the options of ``chat``. Errors are raised at the first
        piece."""
        return AsyncTextStream(lambda: self.chat(messages, **options))

    def _stream(self, prompt: list[int], options: GenerateOptions, began_s: float) -> TextStream:
        if self._scheduler.closed or self._scheduler.lost:
            raise self._scheduler.unusable()
        if not prompt:
            raise UsageError("the prompt has no tokens; give at least one character")
        if len(prompt) > self.capacity:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, and the context is {self.capacity}: shorten it, or "
                "open the session with a larger context"
            )
        if options.adapter and options.adapter not in self.adapters:
            available = ", ".join(self.adapters) or "none; build it with one"
            raise UsageError(f"the bundle has no adapter {options.adapter[:64]!r}; available: {available}")
        guide, speculation = self._guides.guide(options), self._scheduler.decoder.speculation
        stream = TextStream(self, prompt, options, guide=guide, speculation=speculation, began_s=began_s)
        if speculation.on:
            by_lookup = speculation.proposer == LOOKUP
            stream.proposer = PromptLookup() if by_lookup else DraftProposer(self._scheduler.propose, stream)
        return stream

    # --- what ran ----------------------------------------------------------------------------------------

    @property
    def template(self) -> str:
        """Return the template of chats; "" where the model has none."""
        return self._parts.template

    @property
    def adapters(self) -> tuple[str, ...]:
        """Return the names of the bundle's LoRA adapters."""
        return self._decoders.adapters

    @property
    def capacity(self) -> int:
        """Tokens of a text, its prompt included."""
        return self._scheduler.decoder.capacity

    @property
    def active(self) -> Active:
        """Return the active variant."""
        return self._decoders.active

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return the fallbacks that led to the active variant; empty if it is the best one."""
        return self._decoders.fallbacks

    @property
    def history(self) -> tuple[Fallback, ...]:
        """Return the last 100 changes of the active variant."""
        return self._decoders.history

    def facts(self) -> Mapping[str, Json]:
        """Return facts of the loaded decoder, of speculation and of the caches."""
        return self._scheduler.facts()

    def close(self) -> None:
        """Free the decoder, and the bundle if it was opened here. Texts that go on end with an error."""
        self._scheduler.close()
        self._close()

    def forked(self) -> None:
        """Replace the locks in a forked process; drop an engine that needs threads."""
        self.tokenizer.forked()
        self._render = None  # it has a lock, too
        if not self._scheduler.closed:
            self._scheduler.forked(self._threads > 1)

    def __repr__(self) -> str:
        return f"<TextSession: {self.active.variant} on {self.active.engine}>"

    # --- for its streams ---------------------------------------------------------------------------------

    def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
        """Compute logits for a stream, on the session's scheduler."""
        return self._scheduler.logits(stream, tokens, rows)

    def ended(self, stream: TextStream, result: GeneratedText) -> None:
        """Record that a stream has ended."""
        if stream.prefix_tokens:
            self._scheduler.keep(stream.tokens[: stream.prefix_tokens])
        if self._metrics is not None:
            self._metrics.ended(
                result, self.active, self.history, self._scheduler.decoder.speculation.as_json()
            )
