"""A generation in asyncio: each step runs in a thread, so the event loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from types import TracebackType

from edgekit.errors import UsageError
from edgekit.generate.device.generated_text import GeneratedText
from edgekit.generate.device.text_stream import TextStream


class AsyncTextStream:
    """Pieces of text, for ``async for``. A task that is cancelled frees the decoder within one step.

        async with session.agenerate("Once upon a time") as stream:
            async for piece in stream:
                print(piece, end="", flush=True)
        stream.result.reason

    Args:
        begin: Makes the stream; called in a thread before the first piece, since a template, a grammar and
            the tokenizer take their time. What it raises, the first piece does.
    """

    def __init__(self, begin: Callable[[], TextStream]) -> None:
        self._begin = begin
        self._stream: TextStream | None = None
        self._cancelled = False
        self._lock = Lock()

    def __aiter__(self) -> AsyncTextStream:
        return self

    async def __anext__(self) -> str:
        try:
            piece = await asyncio.to_thread(self._next)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def text(self) -> str:
        """Iterate to the end and return the whole text."""
        async for _ in self:
            pass
        return self.result.text

    @property
    def result(self) -> GeneratedText:
        """Return the result of the generation."""
        if self._stream is None:
            raise UsageError("the generation has not begun: iterate over it for its result")
        return self._stream.result

    def cancel(self) -> None:
        """End the generation within one step of the engine."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    async def aclose(self) -> None:
        """End it; waits for the step that runs."""
        self.cancel()
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncTextStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _next(self) -> str | None:
        with self._lock:
            if self._stream is None:
                self._stream = self._begin()
            if self._cancelled:
                self._stream.cancel()
            return next(self._stream, None)

    def _close(self) -> None:
        with self._lock:
            if self._stream is not None:
                self._stream.close()
