"""Served version of a model that predicts in several runs, which wait in the model's queue: texts, piece by
piece."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any

from edgekit.errors import BusyError
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.processing.processing import predict_parts
from edgekit.processing.sound_files import decode_sound
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.serve.inference_requests import DEFAULT_PRIORITY, RequestError
from edgekit.serve.request_traces import current_trace
from edgekit.serve.served_model import Paths, ServedModel, ServeOptions
from edgekit.serve.text_queue import TextQueue
from edgekit.tensor_spec import Array


class ServedParts(ServedModel, TextQueue):
    """Version of a model whose predictions are texts in parts. Its arrays run as those of any other model."""

    noun, source = "text", "the text to read"
    """Names of its predictions and of what they are made from, in messages."""

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        ServedModel.__init__(self, name, version, paths, options, probe=probe)
        TextQueue.__init__(self, name, options)

    def failed(self, problem: BaseException | None) -> None:
        """Count a text that did not begin in time. The model's queue counts runs that fail."""
        if problem is None:
            self.metrics.answered("refused")

    def close(self) -> None:
        """End all texts and requests, and free the engine."""
        self.end_texts()
        super().close()


class PartStream:
    """Text that is written run by run.

    Args:
        rate: Sample rate in Hz (audio). None means a string.

    Attributes:
        prediction: Prediction so far; None before the first run.

    Raises:
        UsageError: an option does not fit.
    """

    def __init__(
        self,
        model: ServedParts,
        item: str | Array,
        rate: int | None,
        options: Mapping[str, Any],
        deadline_ms: float,
    ) -> None:
        self._model, self._due_s = model, time.monotonic() + deadline_ms / 1000
        self._deadline_ms = model.options.text_deadline_ms
        self._cancelled = False
        self._part: Future[dict[str, Array]] | None = None
        self.prediction: Any = None
        self._parts = predict_parts(model.session.card, self._run, item, rate, options)

    @property
    def result(self) -> Any:
        """Return the prediction so far, as the response needs it."""
        return self.prediction

    def _run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        if self._cancelled:
            raise CancelledError
        if time.monotonic() > self._due_s:
            raise self._overdue()
        trace = current_trace()
        record = None if trace is None else RunRecord(trace.context)
        try:
            # With the same deadline from now on, the parts of several texts run in turns.
            self._part = self._model.requests.run_async(feeds, self._deadline_ms, DEFAULT_PRIORITY, record)
            return self._part.result()
        except BusyError as problem:
            raise self._model.overdue(problem) from None
        finally:
            if trace is not None and record is not None:
                trace.ran(record)

    def _overdue(self) -> RequestError:
        return RequestError(
            f"the {self._model.noun} was not finished within {self._deadline_ms / 1000:g} s; send "
            f"{self._model.source} in parts, or raise --text-deadline-ms",
            413,
        )

    def __iter__(self) -> Iterator[str]:
        length = 0
        for prediction in self._parts:
            self.prediction = prediction
            if piece := prediction.text[length:]:
                yield piece
            length = len(prediction.text)

    def cancel(self) -> None:
        """End it after the part that runs; from any thread."""
        self._cancelled = True
        if self._part is not None:
            self._part.cancel()

    def __enter__(self) -> PartStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()


class ServedSpeech(ServedParts):
    """Version of a speech model.

    Attributes:
        languages: Codes of the languages that it knows. Empty means one.
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
        """Decode a recording, and return the stream of its text.

        Raises:
            RequestError: the audio can't be decoded. UsageError: an option does not fit.
        """
        try:
            samples, rate = decode_sound(sound)
        except ValueError as problem:
            raise RequestError(f"file can't be read as a sound: {problem}") from None
        return PartStream(self, samples, rate, options, deadline_ms)


class ServedText2Text(ServedParts):
    """Version of a text-to-text model. Texts are written one after the other: its decoder has the cache of
    one, and each of two texts in turns would be computed anew at every part.
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
