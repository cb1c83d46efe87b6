"""Result of one generation: its text and statistics."""

from __future__ import annotations

from typing import NamedTuple

from edgekit.tensor_spec import Json

REASONS = ("stop", "length", "context", "timeout", "cancelled", "failed")
"""stop: the model ended its text, or a stop word or the grammar did. length: ``max_tokens``. context: the
cache is full. timeout: ``deadline_ms``. cancelled: by ``cancel``, ``close`` or the end of its ``with`` block.
failed: an error was raised."""


class GeneratedText(NamedTuple):
    """The result of a generation.

    Attributes:
        reason: Why it ended, one of REASONS.
        cached_tokens: Number of those that were in the cache already.
        tokens: New tokens, the one that ended the text included.
        first_token_ms: From the call to the first token; 0 if there is none.
        total_ms: From the call to the end, without the time that the caller took between pieces.
        proposed: Tokens that speculative decoding guessed.
        accepted: Those that the decoder agreed to.
        steps: Steps of the decoder after the prompt was read.
    """

    text: str
    reason: str
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    first_token_ms: float
    total_ms: float
    proposed: int = 0
    accepted: int = 0
    steps: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Return tokens per second after the first token; 0 if there is only one."""
        seconds = (self.total_ms - self.first_token_ms) / 1000
        return (self.tokens - 1) / seconds if self.tokens > 1 and seconds > 0 else 0.0

    def as_json(self) -> dict[str, Json]:
        """Return all fields but the text."""
        rest = {name: value for name, value in self._asdict().items() if name != "text"}
        return {**rest, "tokens_per_s": self.tokens_per_s}

    def __repr__(self) -> str:
        """Return a form without the text: an accidental print does not leak it."""
        return f"<GeneratedText: {self.tokens} tokens, {self.reason}>"
