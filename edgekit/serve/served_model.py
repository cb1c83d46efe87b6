"""Served version of a model: a session with its queue and metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import BusyError, MissingDependency, UsageError
from edgekit.processing.schedule import read_schedule
from edgekit.processing.tokenizer import need_tokenizers
from edgekit.runtime import Session
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.remote.inference_protocol import DATATYPES
from edgekit.runtime.scheduling.batching import Batching
from edgekit.runtime.scheduling.request_queue import Requests
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.serve.inference_requests import (
    DEFAULT_PRIORITY,
    AnswerWriter,
    Request,
    RequestError,
    RequestReader,
    body_limit_bytes,
)
from edgekit.serve.serve_request import CONVERSATIONS, DEADLINE_MS, QUEUE, TEXT_DEADLINE_MS
from edgekit.tensor_spec import Array

Paths = Sequence[Path]
"""Path of a model's bundle, and of its bundle with a larger batch size, if any."""
COPIES = 4
"""Copies of a request's tensors at 8 bytes a value: received, queued, and the response as arrays and as
text."""


@dataclass(frozen=True)
class ServeOptions:
    """Options for running models.

    Attributes:
        engine: Name of the engine to try first, or None.
        deadline_ms: Maximum time of a request in milliseconds; a client may request less.
        text_deadline_ms: Maximum time of a text in milliseconds (language models).
        conversations: Number of texts that are generated at once, each with its cache (language models).
        context: Maximum context length in tokens (language models). None means the card's.
    """

    engine: str | None = None
    threads: int | None = None
    deadline_ms: float = DEADLINE_MS
    queue: int = QUEUE
    text_deadline_ms: float = TEXT_DEADLINE_MS
    conversations: int = CONVERSATIONS
    context: int | None = None


class ServedModel:
    """Version of a model.

    Args:
        paths: Path of the bundle, and of the same model with a larger batch size, if any. The second is used
            if batches are faster, which is measured here, once per machine.
        probe: Load the model once in a child process first.

    Attributes:
        shapes: Inputs and outputs at each shape, the largest last; a request runs at that of its arrays.
        missing: Reason that it processes no texts although its card takes them, or "".
        run_bytes: Memory of a request and its response, after its body is read.
        read, answer: Parse bodies into requests, and write responses as bodies.
        retired: Whether it closes after its last request.

    Raises:
        EdgeKitError: ``Session`` fails; UsageError: the protocol has no type for an input or an output, or
            the second bundle is of another model.
    """

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        self.name, self.version, self.options = name, version, options
        self.users, self.retired = 0, False
        self.many: Session | None = None
        self.session = Session(
            paths[0], engine=options.engine, threads=options.threads, warm=True, probe=probe
        )
        try:
            for spec in (*self.session.inputs, *self.session.outputs):
                if spec.dtype not in DATATYPES:
                    raise UsageError(
                        f"{paths[0]}: {spec} can't be served: the protocol does not have its type"
                    )
            card = self.session.bundle.card or {}
            self.schedule = read_schedule(card["schedule"], "schedule") if "schedule" in card else None
            self.batching = None
            if len(paths) > 1:
                self.many = Session(paths[1], engine=options.engine, threads=self.session.threads)
                self.batching = Batching(self.session, self.many)
                if not self.batching.pays:
                    self.many.close()
                    self.many = None
        except BaseException:
            if self.many is not None:
                self.many.close()
            self.session.close()
            raise
        self.metrics = Metrics(self.session)
        self.requests = Requests(
            self.session, options.queue, batching=self.batching, shed=True, metrics=self.metrics
        )
        self.shapes = self.session.shapes
        self.limit_bytes = max(body_limit_bytes(inputs) for inputs, _ in self.shapes)
        self.run_bytes = max(
            sum(math.prod(spec.shape) * COPIES * 8 for specs in both for spec in specs)
            for both in self.shapes
        )
        self.missing = _missing_for_texts(self.session)
        self.read = RequestReader(self.shapes)
        self.answer = AnswerWriter(name, version)

    @property
    def state(self) -> str:
        """Return the session's state, ``ready`` if it responds, or ``incomplete`` if a package for its texts
        is not installed."""
        return "incomplete" if self.missing else self.session.state

    def run(
        self,
        request: Request,
        spent_s: float = 0.0,
        reading_s: float = 0.0,
        record: RunRecord | None = None,
    ) -> Future[dict[str, Array]]:
        """Queue a request.

        Args:
            spent_s: Time that has passed since its arrival, in seconds.
            reading_s: Part of that spent on receiving its body; only a client's own deadline counts it.

        Raises:
            RequestError: 503: the queue is full, or too long for the deadline. It is rejected at once, so
                that the client can try another server.
        """
        left_ms = self.options.deadline_ms - 1000 * (spent_s - reading_s)
        if request.timeout_ms is not None:
            left_ms = min(left_ms, request.timeout_ms - 1000 * spent_s)
        if left_ms <= 0:
            self.metrics.answered("refused")
            deadline_ms = min(self.options.deadline_ms, request.timeout_ms or math.inf)
            raise self.overdue(
                BusyError(f"not run: its deadline of {deadline_ms:g} ms passed while it was read")
            )
        try:
            return self.requests.run_async(
                request.feeds, left_ms, request.priority or DEFAULT_PRIORITY, record
            )
        except BusyError as problem:
            raise self.overdue(problem) from None

    def overdue(self, problem: BusyError) -> RequestError:
        """Return the error for a client whose request was not run."""
        return RequestError(str(problem), 503, max(1, math.ceil(self.requests.expected_s())))

    def close(self) -> None:
        """Finish the running request, cancel the waiting ones, and free the engine."""
        self.requests.close()
        self.session.close()
        if self.many is not None:
            self.many.close()


def _missing_for_texts(session: Session) -> str:
    """Return the error of the first text, if the card takes texts and what reads tokenizers is missing."""
    card = session.bundle.card or {}
    kinds = {entry.get("kind") for entry in card.get("inputs", {}).values()}
    if "text" not in kinds and card.get("task", {}).get("kind") != "text2text":
        return ""
    try:
        need_tokenizers()
    except MissingDependency as problem:
        return str(problem)
    return ""
