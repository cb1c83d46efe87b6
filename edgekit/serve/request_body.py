"""The body of a request over HTTP: bounded in size and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import Lease

DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
BODY_SECONDS = 30.0
"""In which a body must have come, or as much of it as BYTES_PER_SECOND give: it holds memory meanwhile."""
BYTES_PER_SECOND = 32 << 10
PIECE_BYTES = 64
"""Memory of a piece of a body, beside its bytes."""
BEGAN = "edgekit.began_s"
"""Of a scope: when the first byte of the request came, on the clock of ``time.monotonic``."""


def began_s(scope: Mapping[str, Any]) -> float:
    """Return when a request began, in s of ``time.monotonic``, or the current time if the server does not
    report it."""
    start_s: float = scope.get(BEGAN) or time.monotonic()
    return start_s


def host_of(scope: Mapping[str, Any]) -> str:
    """Return the address of a client; "" where the server does not say."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the headers by name in lower case. If several have one name, return the first."""
    return dict(reversed(scope["headers"]))


def body_seconds(received_bytes: int) -> float:
    """Return the time in which a body must have come of which there are so many bytes: who sends steadily may
    take as long as the line needs.

    >>> body_seconds(0), body_seconds(5_000_000)
    (30.0, 182.587890625)
    """
    return BODY_SECONDS + received_bytes / BYTES_PER_SECOND


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    limit_bytes: int,
    lease: Lease | None = None,
) -> bytes:
    """Read and return the whole body of a request.

    Args:
        headers: Headers of the request.
        receive: ASGI's ``receive``.
        limit_bytes: More is an error.
        lease: Holds the memory that the body takes, twice while its pieces are joined.

    Raises:
        RequestError: it is too large, compressed, or does not come in time, or the client is gone. As
            ``Lease.hold``.
    """
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise RequestError("the body is compressed; send it uncompressed", 415)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limit_bytes + DISCARDED_BYTES:
        raise _too_large(limit_bytes)
    reader, limit = _BodyReader(limit_bytes, lease), _TimeLimit()
    limit.begin(reader)
    try:
        return await reader.read(receive)
    except asyncio.CancelledError:
        if not limit.is_over:
            raise
        task: Any = limit.task
        if hasattr(task, "uncancel"):  # from Python 3.11 on
            task.uncancel()
        raise RequestError(
            f"the body did not arrive within {BODY_SECONDS:g} s, and came more slowly than "
            f"{BYTES_PER_SECOND >> 10} KB a second",
            408,
        ) from None
    finally:
        limit.end()


class _TimeLimit:
    """Cancels the task that reads a body when its time is over.

    Not asyncio.wait_for, which in Python 3.10 and 3.11 makes a task of each body, a tenth of what a request
    costs; and no function in ``read_body``, which would refer to itself and stay until the next collection.

    Attributes:
        is_over: Whether it has cancelled the task.
        task: The task.
    """

    is_over = False
    _timer: asyncio.TimerHandle | None = None

    def __init__(self) -> None:
        self.task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()

    def begin(self, reader: _BodyReader) -> None:
        """Begin to wait, or go on."""
        left_s = self._begin_s + body_seconds(reader.size_bytes) - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self.begin, reader)
        elif self.task is not None:
            self.is_over = True
            self.task.cancel()

    def end(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _BodyReader:
    """Reader of a body.

    Attributes:
        size_bytes: Number of bytes received.
    """

    def __init__(self, limit_bytes: int, lease: Lease | None) -> None:
        self._limit_bytes, self._lease = limit_bytes, lease
        self.size_bytes = 0

    async def read(self, receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> bytes:
        pieces: list[bytes] = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestError("the client closed the connection")
            piece, more = message.get("body", b""), message.get("more_body", False)
            self.size_bytes += len(piece)
            if self.size_bytes > self._limit_bytes + DISCARDED_BYTES:
                raise _too_large(self._limit_bytes)
            if self.size_bytes > self._limit_bytes:
                pieces.clear()
            else:
                if self._lease is not None:
                    self._lease.hold(2 * self.size_bytes + PIECE_BYTES * len(pieces))
                pieces.append(piece)
        if self.size_bytes > self._limit_bytes:
            raise _too_large(self._limit_bytes)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(f"the body is larger than this model's limit of {limit_bytes} bytes", 413)
