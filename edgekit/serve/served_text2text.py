"""Served version of a text-to-text model: its texts are written in the model's queue, a few tokens a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from edgekit.generate.device.generated_text import GeneratedText
from edgekit.serve.served_model import Paths, ServeOptions
from edgekit.serve.served_parts import PartStream, ServedParts


class ServedText2Text(ServedParts):
    """Version of a text-to-text model. Texts are written one after the other: its decoder has the cache of
    one, and each of two texts in turns would be computed anew at every part.

    Attributes:
        turn: Lock of the text that is being written.
    """

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        super().__init__(name, version, paths, options, probe=probe)
        self.turn = threading.Lock()

    def write(self, text: str, options: Mapping[str, Any], deadline_ms: float) -> TextPartStream:
        """Return the stream of the text that is written from another one.

        Raises:
            UsageError: an option does not fit.
        """
        return TextPartStream(self, text, None, options, deadline_ms)


class TextPartStream(PartStream):
    """Text that is written from another one, with the figures that responses have."""

    def __init__(self, model: ServedText2Text, *arguments: Any) -> None:
        super().__init__(model, *arguments)
        self._turn, self._begun_s = model.turn, time.monotonic()

    def __iter__(self) -> Iterator[str]:
        if not self._turn.acquire(timeout=max(0.0, self._due_s - time.monotonic())):
            raise self._overdue()
        try:
            yield from super().__iter__()
        finally:
            self._turn.release()

    @property
    def result(self) -> GeneratedText:
        """Return the text so far, and its numbers of tokens."""
        written, elapsed_ms = self.prediction, 1000 * (time.monotonic() - self._begun_s)
        tokens = len(written.tokens) + (written.reason == "stop")
        reason = written.reason or "cancelled"
        return GeneratedText(written.text, reason, written.source_tokens, 0, tokens, 0.0, elapsed_ms)
