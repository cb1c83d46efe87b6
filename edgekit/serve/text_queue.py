"""Texts that a model writes for a server: a bounded queue, worker threads, and pieces for the event loop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

from edgekit.errors import EngineError
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.traces.run_record import new_fallbacks
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_traces import RequestTrace, current_trace
from edgekit.serve.served_model import ServeOptions

UNREAD_SECONDS = 30.0
"""Time after a text's deadline in which its client reads the rest."""


class PieceStream(AbstractContextManager["PieceStream"], Protocol):
    """A text that is being written: an iterator of its pieces."""

    @property
    def result(self) -> Any:
        """Return the whole text, at its end."""

    def __iter__(self) -> Iterator[str]:
        """Write the text piece by piece."""

    def cancel(self) -> None:
        """End it within one run of the engine; from any thread."""


Begin = Callable[[float], PieceStream]
"""Creates a stream, with its time limit in milliseconds; called in a worker thread."""


class TextQueue:
    """Texts of a model that run or wait."""

    def __init__(self, name: str, options: ServeOptions) -> None:
        self.name, self.options = name, options
        self.closed = False
        self._workers = ThreadPoolExecutor(options.conversations, f"edgekit-text-{name}")
        self._runs: dict[TextRun, str] = {}

    def generated(self, result: Any, waited_s: float) -> None:
        """Count a text that ended (hook for subclasses)."""

    def failed(self, problem: BaseException | None) -> None:
        """Count a text that failed. None means it did not begin in time (hook for subclasses)."""

    def trace(
        self,
        trace: RequestTrace,
        result: Any,
        begun_s: tuple[float, float],
        fallbacks: Sequence[Fallback],
    ) -> None:
        """Record the spans of a text that ended (hook for subclasses).

        Args:
            begun_s: When its stream was asked for, and when it was there, on the clock of ``time.monotonic``.
        """

    def changes(self) -> Sequence[Fallback]:
        """Return the last changes of the variant (hook for subclasses)."""
        return ()

    def begin(self, begin: Begin, network: str, share: float, since_s: float) -> TextRun:
        """Queue a text. Call it in the event loop.

        Args:
            network: Address of the client, as ``network_of`` returns it. "" means unknown.
            share: Share of the running and waiting texts that one address may have.

        Raises:
            RequestError: 503: too many texts wait; 429: too many of this address.
        """
        if self.closed:
            raise _closing()
        limit = self.options.queue + self.options.conversations
        if len(self._runs) >= limit:
            raise RequestError(f"{limit} texts of {self.name} run or wait; retry in 1 s", 503, 1)
        allowed = max(1, math.floor(limit * share))
        if network and sum(address == network for address in self._runs.values()) >= allowed:
            raise RequestError(
                f"{allowed} texts of this address run or wait, the limit of an address; retry in 1 s", 429, 1
            )
        run = TextRun(self, begin, since_s)
        self._runs[run] = network
        run.start(self._workers)
        return run

    def ended(self, run: TextRun) -> None:
        """Remove a text from the queue."""
        self._runs.pop(run, None)

    def end_texts(self) -> None:
        """End all texts, and the worker threads. No text can begin afterwards."""
        self.closed = True
        for run in list(self._runs):
            run.cancel()
        self._workers.shutdown(cancel_futures=True)


class TextRun:
    """A text that a worker thread generates for the event loop.

    Args:
        since_s: Arrival of the request, on the clock of ``time.monotonic``.

    Attributes:
        result: Result of the text; None before its end.
    """

    def __init__(self, model: TextQueue, begin: Begin, since_s: float) -> None:
        self._model, self._begin, self._since_s = model, begin, since_s
        self._due_s = since_s + model.options.text_deadline_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[object] = asyncio.Queue()
        self._stream: PieceStream | None = None
        self._cancelled = False
        self._future: Future[None] | None = None
        self.result: Any = None
        self._trace = current_trace()

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
            self._model.failed(None)
            raise _overdue() from None

    async def piece(self) -> str | None:
        """Return the next piece of the text; None at its end."""
        event = await self._next()
        if isinstance(event, str):
            return event
        self.result = event
        if getattr(event, "reason", "") == "cancelled":
            raise _ended()
        return None

    async def _next(self) -> object:
        event = await self._events.get()
        if isinstance(event, CancelledError):
            raise _ended()
        if isinstance(event, BaseException):
            raise event
        return event

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
        with nullcontext() if self._trace is None else self._trace.entered():
            self._run_inside()

    def _run_inside(self) -> None:
        began_s, before = time.monotonic(), self._model.changes()
        if self._trace is not None:
            self._trace.part("wait", self._since_s, began_s)
        try:
            left_ms = 1000 * (self._due_s - began_s)
            if self._cancelled or left_ms <= 0:
                self._post(CancelledError() if self._cancelled else _overdue())
                return
            with self._begin(left_ms) as stream:
                begun_s, self._stream = time.monotonic(), stream
                if self._cancelled:
                    stream.cancel()
                self._post(None)
                for piece in stream:
                    self._post(piece)
            self._model.generated(stream.result, began_s - self._since_s)
            if self._trace is not None:
                self._trace.part("prepare", began_s, begun_s)
                fallbacks = new_fallbacks(before, self._model.changes())
                self._model.trace(self._trace, stream.result, (began_s, begun_s), fallbacks)
            self._post(stream.result)
        except BaseException as problem:
            self._model.failed(problem)
            self._post(problem if isinstance(problem, Exception) else EngineError("interrupted"))


def _closing() -> RequestError:
    return RequestError("the server is shutting down", 503, 1)


def _ended() -> RequestError:
    return RequestError("the text was ended: the client or the server closed", 503, 1)


def _overdue() -> RequestError:
    return RequestError("the text did not begin before its deadline; retry in 1 s", 503, 1)
