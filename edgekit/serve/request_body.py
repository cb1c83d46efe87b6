"""The body of a request over HTTP, bounded in size. ``http_protocol.py`` bounds its time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import Lease

DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
PIECE_BYTES = 64
"""Memory of a piece of a body, in addition to its bytes."""
BEGAN = "edgekit.began_s"
"""Of a scope: when the first byte of the request came, on the clock of ``time.monotonic``."""


def began_s(scope: Mapping[str, Any]) -> float:
    """Return when a request began, in s of ``time.monotonic``, or the current time if the server does not
    report it."""
    start_s: float = scope.get(BEGAN) or time.monotonic()
    return start_s


def host_of(scope: Mapping[str, Any]) -> str:
    """Return the address of a client; "" if the server does not say."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the headers by name in lower case. If several have one name, return the first."""
    return dict(reversed(scope["headers"]))


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    limit_bytes: int,
    lease: Lease | None = None,
) -> bytes:
    """Read and return the whole body of a request.

    Args:
        lease: Holds the memory that the body takes, twice while its pieces are joined.

    Raises:
        RequestError: it is too large or compressed, or the client is gone. As ``Lease.hold``.
    """
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise RequestError("the body is compressed; send it uncompressed", 415)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > limit_bytes + DISCARDED_BYTES:
        raise _too_large(limit_bytes)
    pieces: list[bytes] = []
    size_bytes, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("the client closed the connection")
        piece, more = message.get("body", b""), message.get("more_body", False)
        size_bytes += len(piece)
        if size_bytes > limit_bytes + DISCARDED_BYTES:
            raise _too_large(limit_bytes)
        if size_bytes > limit_bytes:
            pieces.clear()
        else:
            if lease is not None:
                lease.hold(2 * size_bytes + PIECE_BYTES * len(pieces))
            pieces.append(piece)
    if size_bytes > limit_bytes:
        raise _too_large(limit_bytes)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(f"the body is larger than this model's limit of {limit_bytes} bytes", 413)
