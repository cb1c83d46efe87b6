"""One call of gRPC: its metadata, its messages in both directions, and how it ends.

Source of names and codes: github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md and doc/statuscodes.md.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import RequestMemoryError

if TYPE_CHECKING:
    from h2.connection import H2Connection

    from edgekit.serve.request_memory import Lease


class Code(IntEnum):
    """Codes of gRPC with which a call ends here."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    415: Code.UNIMPLEMENTED,
    429: Code.RESOURCE_EXHAUSTED,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
}
STREAM = "ModelStreamInfer"
TIME_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""Characters of an error's text that are sent as they are."""
PREFIX_BYTES = 5
"""Size of what a message begins with: whether it is compressed, and its size."""


class CallHandler(Protocol):
    """Handler of calls (``grpc_calls.Calls``)."""

    limit_bytes: int

    def first(self, call: GrpcCall, content: bytes) -> None:
        """Answer a call whose first message is there."""

    def over(self, call: GrpcCall) -> None:
        """Note that a call has ended."""


class CallConnection(Protocol):
    """Connection with calls (``grpc_protocol.GrpcProtocol``)."""

    host: str
    transport: Any
    http2: H2Connection
    calls: dict[int, GrpcCall]

    def leave(self) -> None:
        """Take no more calls, and close the connection after those that are open."""

    def works(self) -> None:
        """Note that a call is being answered."""

    def flush(self) -> None:
        """Write what h2 has to send."""

    def taken(self, stream_id: int, size_bytes: int) -> None:
        """Let the client of a call send so many bytes more."""

    def reset(self, stream_id: int, code: ErrorCodes) -> None:
        """Read no more of a call."""

    def room_bytes(self, stream_id: int) -> int:
        """Return the size of the frame that may be sent now."""

    async def room(self) -> None:
        """Wait until the client has read."""

    def ended(self, call: GrpcCall, was_answered: bool) -> None:
        """Forget a call."""


class GrpcCall:
    """One call.

    Args:
        calls: Answers it.
        connection: Its connection.
        stream_id: Its number there.
        headers: The client's.
        lease: Holds the memory of its messages.

    Attributes:
        host: Address of the client.
        path: ``/SERVICE/METHOD``.
        metadata: Headers of the client, by lower-case name.
        trailing: Metadata that are sent with the code of the answer.
        timer: Ends the wait for the first message.
        task: Answers the call; None before its first message.
        keeps_messages: Whether further messages are read.
    """

    def __init__(
        self,
        calls: CallHandler,
        connection: CallConnection,
        stream_id: int,
        headers: Sequence[tuple[bytes, bytes]],
        lease: Lease,
    ) -> None:
        self.connection, self.stream_id, self.lease = connection, stream_id, lease
        self.metadata = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self.host, self.path = connection.host, self.header(":path")
        self.trailing: list[tuple[str, str]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.keeps_messages = False
        self._calls = calls
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_s = 0.0
        self._buffer = bytearray()
        self._messages: deque[bytes] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._untaken_bytes = 0
        self._is_over = self._has_ended = self._has_head = self._had_message = False

    def header(self, name: str) -> str:
        """Return a header; "" where there is none."""
        return next((value for key, value in self.metadata if key == name), "")

    def start_deadline(self) -> None:
        """Begin the time that the client gives.

        Raises:
            RequestError: it is not a time.
        """
        text = self.header("grpc-timeout")
        if not text:
            return
        digits, unit = text[:-1], TIME_UNITS.get(text[-1])
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 8) or unit is None:
            raise RequestError("grpc-timeout is not a time")
        seconds = int(digits) * unit
        self._deadline_s = time.monotonic() + seconds
        overdue = RequestError("the deadline of the call has passed", 408)
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.fail, overdue)

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None: it has none."""
        return None if self._deadline is None else self._deadline_s - time.monotonic()

    # --- messages of the client --------------------------------------------------------------------------

    def receive(self, data: bytes, size_bytes: int) -> None:
        """Take a part of a message; ``size_bytes`` are for its window."""
        if self._had_message and not self.keeps_messages:
            self.connection.taken(self.stream_id, size_bytes)
            return
        self._buffer += data
        self._untaken_bytes += size_bytes
        while len(self._buffer) >= PREFIX_BYTES and not self._is_over:
            compressed, size = struct.unpack_from(">BI", self._buffer)
            if compressed or size > self._calls.limit_bytes:
                limit = f"the message has {size} bytes; the limit is {self._calls.limit_bytes}"
                self.fail(
                    RequestError("messages must not be compressed", 415)
                    if compressed
                    else RequestError(limit, 413)
                )
                return
            if len(self._buffer) < PREFIX_BYTES + size:
                break
            self._complete(bytes(memoryview(self._buffer)[PREFIX_BYTES : PREFIX_BYTES + size]))
            del self._buffer[: PREFIX_BYTES + size]
        if not self._messages:
            self._take()

    def _complete(self, message: bytes) -> None:
        if not self._had_message:
            self._had_message = True
            self.keeps_messages = self.path.endswith(f"/{STREAM}")
            self._calls.first(self, message)
        elif self.keeps_messages:
            self._messages.append(message)
            self._wake_reader()

    def _take(self) -> None:
        size, self._untaken_bytes = self._untaken_bytes, 0
        if not self._is_over:
            self.connection.taken(self.stream_id, size)

    def receive_end(self) -> None:
        """Take the end of the client's messages."""
        self._has_ended = True
        if not self._had_message and self.task is None:
            self.fail(RequestError("the call has no message"))
        self._wake_reader()

    async def read(self) -> bytes | None:
        """Return the next message; None: the client sends no more."""
        while not self._messages:
            self._take()
            self.connection.flush()
            if self._has_ended:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._messages.popleft()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- the answer --------------------------------------------------------------------------------------

    def _head(self) -> list[tuple[str, str]]:
        if self._has_head:
            return []
        self._has_head = True
        return [
            (":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "identity")
        ]  # fmt: skip

    async def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            asyncio.TimeoutError: the client does not read.
        """
        http2, connection = self.connection.http2, self.connection
        if not self._has_head:
            http2.send_headers(self.stream_id, self._head())
        content, sent = struct.pack(">BI", 0, len(message)) + message, 0
        while sent < len(content):
            size = connection.room_bytes(self.stream_id)
            if size <= 0:
                connection.flush()
                await connection.room()
                continue
            http2.send_data(self.stream_id, content[sent : sent + size])
            sent += size
        if self.keeps_messages:
            connection.flush()  # else with the end

    def fail(self, problem: RequestError) -> None:
        """End the call with the code of an error."""
        if problem.retry_after_s is not None:
            self.trailing.append(("retry-after", str(problem.retry_after_s)))
        code = CODES.get(problem.status, Code.INTERNAL)
        if isinstance(problem, RequestMemoryError):
            code = Code.RESOURCE_EXHAUSTED
        self.end(code, str(problem))

    def end(self, code: Code, details: str = "") -> None:
        """End the call; what its client still sends is not read."""
        if self._is_over:
            return
        status = [("grpc-status", str(int(code)))]
        if details:
            status.append(("grpc-message", quote(details, safe=PLAIN)))
        with suppress(ProtocolError):  # its client has ended it
            trailers = [*self._head(), *status, *self.trailing]
            self.connection.http2.send_headers(self.stream_id, trailers, end_stream=True)
        self.cancel(None if self._has_ended else ErrorCodes.NO_ERROR)
        self.connection.flush()

    def cancel(self, reset: ErrorCodes | None = None) -> None:
        """Forget the call: its client has ended it, or its answer was sent.

        Args:
            reset: Tell the client so.
        """
        if self._is_over:
            return
        self._is_over = True
        for timer in (self.timer, self._deadline):
            if timer is not None:
                timer.cancel()
        if reset is not None:
            self.connection.reset(self.stream_id, reset)
            self.connection.flush()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        self._calls.over(self)
        self._buffer.clear()
        self._messages.clear()
        self.connection.taken(self.stream_id, self._untaken_bytes)
        self.connection.ended(self, self.task is not None)
