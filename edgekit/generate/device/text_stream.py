"""One generation: an iterator over pieces of text, which can be cancelled from anywhere."""

from __future__ import annotations

import time
from collections.abc import Generator
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from edgekit.errors import UsageError
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.sampling import next_token
from edgekit.generate.device.speculation import Speculation, verified
from edgekit.generate.device.text_tokens import StopWords, TextPieces
from edgekit.system.closing import Closing

if TYPE_CHECKING:
    from typing import Protocol

    from edgekit.generate.device.guidance import Guide
    from edgekit.generate.device.options import GenerateOptions
    from edgekit.generate.device.speculation import Proposer
    from edgekit.generate.device.text_tokens import TextTokenizer
    from edgekit.tensor_spec import Array

    class LogitsSource(Protocol):
        """Source of logits: a session."""

        tokenizer: TextTokenizer
        stop_ids: frozenset[int]

        @property
        def capacity(self) -> int:
            """Maximum length of a text in tokens, its prompt included."""

        def logits(self, stream: TextStream, tokens: list[int], rows: int) -> Array | None:
            """Compute logits for a stream; None if it is to stop."""

        def ended(self, stream: TextStream, result: GeneratedText) -> None:
            """Record that a stream has ended."""


NONE = Speculation()


class TextStream(Closing):
    """Iterator over pieces of a generated text. Each is at least one character.

        with session.generate("Once upon a time") as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        stream.result.reason

    Only ``next`` computes. ``cancel`` may be called from any thread, the other methods from one thread at a
    time.

    Attributes:
        tokens: Tokens of the prompt, then the new ones.
        adapter: Name of the adapter that computes the text; "": none.
        cached_tokens: Number of prompt tokens that were in the cache; set by the session.
        prefix_tokens: Number of first tokens to keep on disk at the end; set by the session.
        proposer: Proposes tokens in speculative decoding; None: nothing is proposed.
    """

    def __init__(
        self,
        session: LogitsSource,
        prompt: list[int],
        options: GenerateOptions,
        *,
        guide: Guide | None = None,
        proposer: Proposer | None = None,
        speculation: Speculation = NONE,
        began_s: float | None = None,
    ) -> None:
        self.cached_tokens = self.prefix_tokens = 0
        self._session, self._options, self._guide = session, options, guide
        self.adapter = options.adapter
        self.proposer, self._speculation = proposer, speculation
        self.tokens, self._prompt_tokens = list(prompt), len(prompt)
        self._used_tokens = set(prompt) if options.repetition_penalty != 1.0 else set()
        self._draws = np.random.default_rng(options.seed)
        self._decoded = TextPieces(session.tokenizer)
        self._stop = StopWords(options.stop)
        self._cancelled = self._chose_end = False
        self._reason = ""
        self._result: GeneratedText | None = None
        self._text: list[str] = []
        self._flow = self._run()
        self._began_s = time.monotonic() if began_s is None else began_s
        self._due_s = inf if options.deadline_ms is None else self._began_s + options.deadline_ms / 1000
        # A template, a grammar and the tokenizer took their time before this.
        self._spent_s = time.monotonic() - self._began_s
        self._first_s = 0.0
        self._proposed = self._accepted = self._steps = self._proposals = 0

    # --- iterating ---------------------------------------------------------------------------------------

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        """Return the next piece.

        Raises:
            EngineError: no variant works.
            UsageError: the session was closed.
        """
        began_s = time.monotonic()
        try:
            piece = next(self._flow)
            self._text.append(piece)
        except StopIteration:
            self._spent_s += time.monotonic() - began_s
            self._end()
            raise
        except BaseException:
            self._spent_s += time.monotonic() - began_s
            self._reason = self._reason or "failed"
            self._end()
            raise
        self._spent_s += time.monotonic() - began_s
        return piece

    def text(self) -> str:
        """Iterate to the end and return the whole text."""
        for _ in self:
            pass
        return "".join(self._text)

    @property
    def result(self) -> GeneratedText:
        """Return the generated text, with its statistics.

        Raises:
            UsageError: it has not ended; iterate to the end, or close it.
        """
        if self._result is None:
            raise UsageError("the generation has not ended: iterate to its end, or close it, for its result")
        return self._result

    @property
    def ended(self) -> bool:
        """Return whether it no longer needs the decoder."""
        return bool(self._reason) or self._cancelled

    @property
    def is_new(self) -> bool:
        """Return whether no token has been generated yet."""
        return not self._generated

    @property
    def stops(self) -> bool:
        """Return whether it was cancelled or its deadline has passed; read between steps of the engine."""
        return self._cancelled or time.monotonic() >= self._due_s

    def cancel(self) -> None:
        """End the generation within one step of the engine; from any thread."""
        self._cancelled = True

    def close(self) -> None:
        """End the generation now; the result's reason is ``cancelled`` if it had not ended."""
        self._cancelled = True
        self._reason = self._reason or "cancelled"
        self._flow.close()
        self._end()

    def __repr__(self) -> str:
        return f"<TextStream: {self._prompt_tokens} tokens read, {self._generated} made>"

    # --- making ------------------------------------------------------------------------------------------

    @property
    def _generated(self) -> int:
        return len(self.tokens) - self._prompt_tokens

    def _run(self) -> Generator[str, None, None]:
        began_s = time.monotonic()
        while not self._reason:
            piece = self._next_text()
            if not self._first_s and self._generated:
                self._first_s = self._spent_s + time.monotonic() - began_s
            if piece:
                yield piece
        rest = "" if self._stop.reached else self._stop.push(self._decoded.rest())
        if rest := rest + self._stop.rest():
            yield rest

    def _next_text(self) -> str:
        """Compute the next logits and return the new text. ``_reason`` is set at the end."""
        free = self._session.capacity - len(self.tokens)
        if free < 0:
            self._reason = "context"
            return ""
        draft = self._propose(free)
        rows = self._session.logits(self, self.tokens + draft, len(draft) + 1)
        if rows is None:
            self._reason = "cancelled" if self._cancelled else "timeout"
            return ""
        new = verified(draft, rows, self._choose)
        self._steps += self._generated > 0
        self._proposed += len(draft)
        self._proposals += bool(draft)
        self._accepted += sum(token == proposed for token, proposed in zip(new, draft, strict=False))
        piece = "".join(map(self._take, new))
        if not self._reason and (self._guide is not None and self._guide.ended):
            self._reason = "stop"
        return piece

    def _propose(self, free: int) -> list[int]:
        """Return tokens that the proposer expects next; at most ``free``."""
        if self.proposer is None or not self._generated:
            return []
        if not self._speculation.goes_on(self._proposals, self._accepted):
            self.proposer = None
            return []
        limit = min(self._speculation.max_tokens, free, self._options.max_tokens - self._generated - 1)
        return self.proposer.propose(self.tokens, limit) if limit > 0 else []

    def _choose(self, row: Array) -> int | None:
        """Choose the decoder's token of a row; None after the end of the text."""
        if self._chose_end or (self._guide is not None and self._guide.ended):
            return None
        allowed = self._guide.allowed(row.size) if self._guide is not None else None
        token = next_token(row, self._options, self._used_tokens, self._draws, allowed)
        self._chose_end = token in self._session.stop_ids
        if self._guide is not None and not self._chose_end:
            self._guide.push(token)
        if self._options.repetition_penalty != 1.0:
            self._used_tokens.add(token)
        return token

    def _take(self, token: int) -> str:
        """Append a token and return the text that it adds; "" at or after the end."""
        if self._reason:
            return ""
        self.tokens.append(token)
        if token in self._session.stop_ids:
            self._reason = "stop"
            return ""
        piece = self._stop.push(self._decoded.push(token))
        if self._stop.reached:
            self._reason = "stop"
        elif self._generated >= self._options.max_tokens:
            self._reason = "length"
        return piece

    def _end(self) -> None:
        self.proposer = None  # its cache is free for another text
        if self._result is None:
            self._result = GeneratedText(
                "".join(self._text),
                self._reason,
                self._prompt_tokens,
                self.cached_tokens,
                self._generated,
                1000 * self._first_s,
                1000 * self._spent_s,
                self._proposed,
                self._accepted,
                self._steps,
            )
            self._session.ended(self, self._result)
