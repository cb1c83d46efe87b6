"""Served version of a speech model: its windows run in the model's queue, its transcripts are texts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edgekit.compiler.evaluate.sound_files import decode_sound
from edgekit.errors import BusyError
from edgekit.processing.processing import predict_parts
from edgekit.processing.tasks.transcribe import TASK
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.serve.inference_requests import DEFAULT_PRIORITY, RequestError
from edgekit.serve.request_traces import current_trace
from edgekit.serve.served_model import Paths, ServedModel, ServeOptions
from edgekit.serve.text_queue import TextQueue

if TYPE_CHECKING:
    from edgekit.processing.tasks.transcribe.prediction import Transcript
    from edgekit.tensor_spec import Array, Json


def is_speech(card: Mapping[str, Json] | None) -> bool:
    """Return whether a bundle's card is that of a speech model."""
    task = card.get("task") if card else None
    return isinstance(task, dict) and task.get("kind") == TASK.kind


class ServedSpeech(ServedModel, TextQueue):
    """Version of a speech model. Its arrays run as those of any other model.

    Args:
        name, version, paths, options, probe: Arguments of ``ServedModel``.

    Attributes:
        languages: Codes of the languages that it knows; empty: one.
    """

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        ServedModel.__init__(self, name, version, paths, options, probe=probe)
        TextQueue.__init__(self, name, options)
        task = self.session.card.task
        self.languages: Sequence[str] = () if task is None else task.options.languages

    def failed(self, problem: BaseException | None) -> None:
        """Count a transcript that did not begin in time. The model's queue counts windows that fail."""
        if problem is None:
            self.metrics.answered("refused")

    def transcribe(
        self, sound: bytes | memoryview, options: Mapping[str, Any], deadline_ms: float
    ) -> TranscriptStream:
        """Decode a sound, and return the stream of its text.

        Args:
            sound: A WAV file.
            options: Options of ``Session.predict``.
            deadline_ms: Time limit in milliseconds.

        Raises:
            RequestError: the sound can't be decoded. UsageError: an option does not fit.
        """
        return TranscriptStream(self, sound, options, deadline_ms)

    def close(self) -> None:
        """End all transcripts and requests, and free the engine."""
        self.end_texts()
        super().close()


class TranscriptStream:
    """Text of a sound, written window by window.

    Args:
        model: Model that runs the windows.
        sound, options, deadline_ms: Arguments of ``ServedSpeech.transcribe``.

    Attributes:
        result: Transcript so far; None before the first window.
    """

    def __init__(
        self,
        model: ServedSpeech,
        sound: bytes | memoryview,
        options: Mapping[str, Any],
        deadline_ms: float,
    ) -> None:
        self._model, self._due_s = model, time.monotonic() + deadline_ms / 1000
        self._deadline_ms = model.options.text_deadline_ms
        self._cancelled = False
        self._window: Future[dict[str, Array]] | None = None
        self.result: Transcript | None = None
        try:
            samples, rate = decode_sound(sound)
        except ValueError as problem:
            raise RequestError(f"file can't be read as a sound: {problem}") from None
        self._windows = predict_parts(model.session.card, self._run, samples, rate, options)

    def _run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run a window in the model's queue."""
        if self._cancelled:
            raise CancelledError
        if time.monotonic() > self._due_s:
            raise RequestError(
                f"the transcript was not finished within {self._deadline_ms / 1000:g} s; send the sound in "
                "parts, or raise --text-deadline-ms",
                413,
            )
        trace = current_trace()
        record = None if trace is None else RunRecord(trace.context)
        try:
            # With the same deadline from now on, the windows of several transcripts run in turns.
            self._window = self._model.requests.run_async(feeds, self._deadline_ms, DEFAULT_PRIORITY, record)
            return self._window.result()
        except BusyError as problem:
            raise self._model.overdue(problem) from None
        finally:
            if trace is not None and record is not None:
                trace.ran(record)

    def __iter__(self) -> Iterator[str]:
        length = 0
        for transcript in self._windows:
            self.result = transcript
            if piece := transcript.text[length:]:
                yield piece
            length = len(transcript.text)

    def cancel(self) -> None:
        """End it after the window that runs; from any thread."""
        self._cancelled = True
        if self._window is not None:
            self._window.cancel()

    def __enter__(self) -> TranscriptStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
