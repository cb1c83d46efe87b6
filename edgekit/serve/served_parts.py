"""Served version of a model that predicts in several runs, which wait in the model's queue: texts, piece by
piece."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any

from edgekit.errors import BusyError
from edgekit.processing.processing import predict_parts
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
        model: Model that runs the parts.
        item: A text, or a sound's samples.
        rate: Sample rate of a sound in Hz; None: of a text.

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
        """Run a part in the model's queue."""
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
