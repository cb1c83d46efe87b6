"""Memory for requests, and their bodies, which it bounds: one budget of bytes for all protocols of a server
process.

    with memory.lease(host) as lease:
        lease.hold(size_bytes)      # all that the request takes now; more or less than before

What is held is what requests take at most: bodies with their copies, parsed JSON, tensors, decoded images
and responses. Used by the event loop and by the threads of gRPC.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from edgekit.serve.connection_watch import network_of
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.serve_request import ADDRESS_SHARE
from edgekit.system.closing import Closing
from edgekit.system.memory import UNKNOWN_BYTES, free_memory_bytes

LEAST_BYTES = 256 << 20
"""Minimum budget, also if the system does not report its free memory."""
SMALL_BYTES = 4 << 20
SMALL_PART = 0.25
"""Part of the budget that only requests below SMALL_BYTES may take: they are answered beside large ones."""
DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
PIECE_BYTES = 64
"""Memory of a piece of a body, in addition to its bytes."""
MARKS, FEW_BYTES = (b",", b"[", b"{", b":"), 4096
BEGAN = "edgekit.began_s"
"""Of a scope: when the first byte of the request came, on the clock of ``time.monotonic``."""


class RequestMemoryError(RequestError):
    """The memory for requests does not suffice, now (503) or for one like this (413)."""


def default_budget_bytes() -> int:
    """Return a quarter of the memory that is free now."""
    free = free_memory_bytes()
    return LEAST_BYTES if free >= UNKNOWN_BYTES else max(LEAST_BYTES, free // 4)


def parsed_bytes(text: bytes) -> int:
    """Return the memory that a text in JSON takes at most, with the objects that are made of it.

    Counted are its own bytes with those of texts (up to 4 n for n characters) and the parser's copy, and of
    each value 16 bytes of the parser, and 48 of a number with its places in two lists and in arrays. A list
    takes 88 more, an object 232 and a key 96.

    >>> parsed_bytes(b"[1,2]"), parsed_bytes(b"[[],[],[]]")
    (262, 668)
    """
    if len(text) < FEW_BYTES:
        values, lists, objects, keys = map(text.count, MARKS)
    else:  # a fifth of the time
        codes = np.frombuffer(text, np.uint8)
        values, lists, objects, keys = (int(np.count_nonzero(codes == ord(mark))) for mark in MARKS)
    return 6 * len(text) + 64 * (values + 1) + 104 * lists + 248 * objects + 112 * keys


class RequestMemory:
    """The budget of one process.

    Attributes:
        share: Part of it that one address may hold.
    """

    def __init__(self, limit_bytes: int | None = None, share: float = ADDRESS_SHARE) -> None:
        self.limit_bytes = default_budget_bytes() if limit_bytes is None else limit_bytes
        self.share = share
        self.held_bytes = self.peak_bytes = 0
        self._lock = threading.Lock()
        self._by_network: dict[str, int] = {}

    def lease(self, host: str = "") -> Lease:
        """Return a lease that holds nothing yet."""
        return Lease(self, network_of(host) if host else "")

    def change(self, network: str, before_bytes: int, size_bytes: int) -> None:
        """Hold so many bytes for a request instead of those before.

        Raises:
            RequestError: 503: others hold too much; 413: it can never have them.
        """
        more = size_bytes - before_bytes
        with self._lock:
            if more > 0:
                self._check(network, before_bytes, size_bytes)
            self.held_bytes += more
            self.peak_bytes = max(self.peak_bytes, self.held_bytes)
            network_bytes = self._by_network.get(network, 0) + more
            if network_bytes:
                self._by_network[network] = network_bytes
            else:
                self._by_network.pop(network, None)

    def _check(self, network: str, before_bytes: int, size_bytes: int) -> None:
        part = 1.0 if size_bytes <= SMALL_BYTES else 1.0 - SMALL_PART
        limit = int(self.limit_bytes * part)
        if size_bytes > limit:
            raise RequestMemoryError(
                f"this request needs {size_bytes >> 20} MB of memory; the limit of one request is "
                f"{limit >> 20} MB. Send less in one request, or raise --request-memory-mb",
                413,
            )
        others = self.held_bytes - before_bytes
        in_use = self._by_network.get(network, 0) - before_bytes
        if others + size_bytes > limit:
            raise RequestMemoryError(
                f"requests hold {self.held_bytes >> 20} of {self.limit_bytes >> 20} MB; retry in 1 s", 503, 1
            )
        if network and in_use and in_use + size_bytes > limit * self.share:
            raise RequestMemoryError(
                f"the requests of this address hold {(in_use + before_bytes) >> 20} MB of memory; the limit "
                f"of an address is {int(limit * self.share) >> 20} MB. Retry in 1 s",
                503,
                1,
            )


class Lease(Closing):
    """Memory that one request holds until it is closed.

    Attributes:
        network: Address of its client; see ``network_of``.
        size_bytes: Number of bytes in use now.
    """

    __slots__ = ("_memory", "network", "size_bytes")

    def __init__(self, memory: RequestMemory, network: str) -> None:
        self._memory, self.network, self.size_bytes = memory, network, 0

    def hold(self, size_bytes: int) -> None:
        """Hold so many bytes in all.

        Raises:
            RequestError: as :meth:`RequestMemory.change`; what was held is held on.
        """
        if size_bytes != self.size_bytes:
            self._memory.change(self.network, self.size_bytes, size_bytes)
            self.size_bytes = size_bytes

    def close(self) -> None:
        """Give all back."""
        self.hold(0)


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
