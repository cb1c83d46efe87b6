"""Served version of a language model: a text session, its worker threads, and its limits."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import EngineError, NoVariantError, UsageError
from edgekit.processing.generation import is_generation
from edgekit.runtime.generate.text_session import TextSession
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.metrics.text_metrics import COUNTS
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_model import Paths, ServeOptions

if TYPE_CHECKING:
    from edgekit.runtime.generate.text_stream import TextStream
    from edgekit.runtime.generated_text import GeneratedText
    from edgekit.tensor_spec import Json, TensorSpec

UNREAD_SECONDS = 30.0
"""Time after a text's deadline in which its client reads the rest."""
Begin = Callable[[float], "TextStream"]
"""Creates a stream, with its time limit in milliseconds; called in a worker thread."""


def has_texts(path: Path) -> bool:
    """Return whether a bundle has a language model.

    Raises:
        BundleError: it can't be opened.
    """
    with Bundle.open(path) as bundle:
        return is_generation(bundle.card)


class ServedText:
    """Version of a language model.

    Args:
        name: Name in URLs.
        version: Version in URLs.
        paths: Path of the bundle.
        options: Options for running it.
        probe: Load the model once in a child process first.

    Attributes:
        users: Number of requests that use it now.
        retired: Whether it closes after its last request.

    Raises:
        EdgeKitError: ``TextSession`` fails; UsageError: two bundles were given.
    """

    schedule = None
    """Cards of language models have no schedule."""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    def __init__(
        self, name: str, version: str, paths: Paths, options: ServeOptions, *, probe: bool = False
    ) -> None:
        if len(paths) > 1:
            raise UsageError(f"{paths[1]}: language models do not take a second bundle for batches")
        self.name, self.version, self.options = name, version, options
        self.users, self.retired, self.closed = 0, False, False
        self.session = _opened(paths[0], options, probe)
        self.metrics = _TextMetrics(self.session)
        self._workers = ThreadPoolExecutor(options.conversations, f"edgekit-text-{name}")
        self._runs: dict[TextRun, str] = {}

    @property
    def state(self) -> str:
        """Return ``ready``, or ``closed``."""
        return "closed" if self.closed else "ready"

    def check(self) -> None:
        """Check a candidate: it generates a token.

        Raises:
            EdgeKitError: no variant works.
        """
        self.session.generate("a", max_tokens=1).text()

    def begin(self, begin: Begin, network: str, share: float, since_s: float) -> TextRun:
        """Queue a text. Call it in the event loop.

        Args:
            begin: Creates the stream.
            network: Address of the client, as ``network_of`` returns it; "": unknown.
            share: Share of the running and waiting texts that one address may have.
            since_s: Arrival of the request, on the clock of ``time.monotonic``.

        Raises:
            RequestError: 503: too many texts wait; 429: too many of this address.
        """
        if self.closed:
            raise _closing()
        limit = self.options.queue + self.options.conversations
        if len(self._runs) >= limit:
            raise RequestError(f"{limit} texts of {self.name} run or wait; retry in 1 s", 503, 1)
        most = max(1, math.floor(limit * share))
        if network and sum(each == network for each in self._runs.values()) >= most:
            raise RequestError(
                f"{most} texts of this address run or wait, the limit of an address; retry in 1 s", 429, 1
            )
        run = TextRun(self, begin, since_s)
        self._runs[run] = network
        run.start(self._workers)
        return run

    def ended(self, run: TextRun) -> None:
        """Remove a text from the queue."""
        self._runs.pop(run, None)

    def close(self) -> None:
        """End all texts and free the engine."""
        self.closed = True
        for run in list(self._runs):
            run.cancel()
        self._workers.shutdown(cancel_futures=True)
        bundle = self.session.bundle
        self.session.close()
        if bundle is not None:
            bundle.close()


def _opened(path: Path, options: ServeOptions, probe: bool) -> TextSession:
    """Open a session with as many conversations as the options ask for, or as fit into memory."""
    bundle = Bundle.open(path)
    count = options.conversations
    try:
        while True:
            try:
                return TextSession(
                    bundle,
                    engine=options.engine,
                    threads=options.threads,
                    probe=probe,
                    context=options.context,
                    conversations=count,
                )
            except NoVariantError:
                if count == 1:
                    raise
                count //= 2
    except BaseException:
        bundle.close()
        raise


class TextRun:
    """A text that a worker thread generates for the event loop.

    Args:
        model: Model that generates it.
        begin: Creates the stream.
        since_s: Arrival of the request, on the clock of ``time.monotonic``.

    Attributes:
        result: Result of the text; None before its end.
    """

    def __init__(self, model: ServedText, begin: Begin, since_s: float) -> None:
        self._model, self._begin, self._since_s = model, begin, since_s
        self._due_s = since_s + model.options.text_deadline_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[object] = asyncio.Queue()
        self._stream: TextStream | None = None
        self._cancelled = False
        self._future: Future[None] | None = None
        self.result: GeneratedText | None = None

    def start(self, workers: ThreadPoolExecutor) -> None:
        """Queue it."""
        try:
            self._future = workers.submit(self._run)
        except RuntimeError:  # the model was closed
            self._model.ended(self)
            raise _closing() from None
        self._future.add_done_callback(self._dropped)

    async def begun(self) -> None:
        """Wait until the stream exists: its options are valid and the prompt fits.

        Raises:
            RequestError: 503: the deadline passed first. As ``TextSession.chat``.
        """
        try:
            await asyncio.wait_for(self._next(), max(0.0, self._due_s - time.monotonic()))
        except asyncio.TimeoutError:
            self.cancel()
            self._model.metrics.answered("refused")
            raise _overdue() from None

    async def piece(self) -> str | None:
        """Return the next piece of the text; None at its end."""
        found = await self._next()
        if isinstance(found, str):
            return found
        assert isinstance(found, tuple)
        self.result = found  # type: ignore[assignment]
        if self.result is not None and self.result.reason == "cancelled":
            raise _ended()
        return None

    async def _next(self) -> object:
        found = await self._events.get()
        if isinstance(found, CancelledError):
            raise _ended()
        if isinstance(found, BaseException):
            raise found
        return found

    def cancel(self) -> None:
        """End the text within one step of the engine; from any thread."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.cancel()
        if self._future is not None:
            self._future.cancel()

    def _dropped(self, future: Future[None]) -> None:
        """Wake the event loop if the text never ran: it was cancelled, or the model closed."""
        if future.cancelled():
            self._post(CancelledError())

    def is_unread(self) -> bool:
        """Return whether its deadline passed so long ago that only a slow reader keeps it."""
        return time.monotonic() > self._due_s + UNREAD_SECONDS

    def close(self) -> None:
        """Remove it from the queue, and end it if it still runs. Call it in the event loop."""
        self.cancel()
        if self._future is None or self._future.done():
            self._model.ended(self)
        else:  # it keeps its place until its thread is free
            self._future.add_done_callback(lambda _: self._call(self._model.ended, self))

    def _call(self, act: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act, *args)

    def _post(self, event: object) -> None:
        self._call(self._events.put_nowait, event)

    def _run(self) -> None:
        metrics, began_s = self._model.metrics, time.monotonic()
        try:
            left_ms = 1000 * (self._due_s - began_s)
            if self._cancelled or left_ms <= 0:
                self._post(CancelledError() if self._cancelled else _overdue())
                return
            with self._begin(left_ms) as stream:
                self._stream = stream
                if self._cancelled:
                    stream.cancel()
                self._post(None)
                for piece in stream:
                    self._post(piece)
            metrics.generated(stream.result, began_s - self._since_s)
            self._post(stream.result)
        except BaseException as problem:
            if not isinstance(problem, UsageError):
                metrics.answered("failed")
            self._post(problem if isinstance(problem, Exception) else EngineError("interrupted"))


def _closing() -> RequestError:
    return RequestError("the server is shutting down", 503, 1)


def _ended() -> RequestError:
    return RequestError("the text was ended: the client or the server closed", 503, 1)


def _overdue() -> RequestError:
    return RequestError("the text did not begin before its deadline; retry in 1 s", 503, 1)


class _TextMetrics(Metrics):
    """Metrics of a language model: those of any model, and counts of tokens."""

    def __init__(self, session: TextSession) -> None:
        super().__init__(session)  # type: ignore[arg-type]  # reads what every session has
        self._tokens = dict.fromkeys(COUNTS, 0)

    def generated(self, result: GeneratedText, waited_s: float) -> None:
        """Count a text."""
        first_s = result.first_token_ms / 1000
        self.took({"wait": waited_s, "first_token": first_s, "tokens": result.total_ms / 1000 - first_s})
        self.answered("cancelled" if result.reason == "cancelled" else "ok")
        with self._lock:
            for name in COUNTS:
                self._tokens[name] += getattr(result, name)

    def snapshot(self) -> dict[str, Json]:
        """Return all metrics, as JSON."""
        found = super().snapshot()
        with self._lock:
            return {**found, "texts": dict(self._tokens)}
