"""The body of a request over HTTP: bounded in size and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.serve.inference_requests import RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
BODY_SECONDS = 30.0
"""In which a body must have come: a client that sends it slowly holds memory."""
BEGAN = "edgekit.began_s"
"""Of a scope: when the first byte of the request came, on the clock of ``time.monotonic``."""


def began_s(scope: Mapping[str, Any]) -> float:
    """When a request began; now, where the server does not say."""
    found: float = scope.get(BEGAN) or time.monotonic()
    return found


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Headers by name in lower case; of several of a name the first."""
    return dict(reversed(scope["headers"]))


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    limit_bytes: int,
) -> bytes:
    """All of a request's body.

    Args:
        headers: Of the request.
        receive: As ASGI has it.
        limit_bytes: More is an error.

    Raises:
        RequestError: it is too large, compressed, or does not come in time, or the client is gone.
    """
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise RequestError("compressed bodies are not taken; send it as it is", 415)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limit_bytes + DISCARDED_BYTES:
        raise _too_large(limit_bytes)
    # Not wait_for, which in Python 3.10 and 3.11 makes a task of each body: a tenth of what a request costs.
    task: Any = asyncio.current_task()
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(BODY_SECONDS, expire)
    try:
        return await _read(receive, limit_bytes)
    except asyncio.CancelledError:
        if not late:
            raise
        if hasattr(task, "uncancel"):  # from Python 3.11 on
            task.uncancel()
        raise RequestError(f"the body did not come within {BODY_SECONDS:g} s", 408) from None
    finally:
        timer.cancel()


async def _read(receive: Callable[[], Awaitable[MutableMapping[str, Any]]], limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("the client is gone")
        piece, more = message.get("body", b""), message.get("more_body", False)
        size += len(piece)
        if size > limit_bytes + DISCARDED_BYTES:
            raise _too_large(limit_bytes)
        if size <= limit_bytes:
            pieces.append(piece)
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(f"the body is larger than this model's limit of {limit_bytes} bytes", 413)
