"""Served version of a speech model: its windows run in the model's queue, its transcripts are texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.compiler.evaluate.sound_files import decode_sound
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_model import Paths, ServeOptions
from edgekit.serve.served_parts import PartStream, ServedParts


class ServedSpeech(ServedParts):
    """Version of a speech model.

    Attributes:
        languages: Codes of the languages that it knows; empty: one.
        translates: Whether it writes English from other languages.
    """

    noun, source = "transcript", "the sound"

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        super().__init__(name, version, paths, options, probe=probe)
        task = self.session.card.task
        self.languages: Sequence[str] = () if task is None else task.options.languages
        self.translates = task is not None and task.options.translation >= 0

    def transcribe(
        self, sound: bytes | memoryview, options: Mapping[str, Any], deadline_ms: float
    ) -> PartStream:
        """Decode a sound, and return the stream of its text.

        Raises:
            RequestError: the sound can't be decoded. UsageError: an option does not fit.
        """
        try:
            samples, rate = decode_sound(sound)
        except ValueError as problem:
            raise RequestError(f"file can't be read as a sound: {problem}") from None
        return PartStream(self, samples, rate, options, deadline_ms)
