"""Calls of gRPC before and around their handlers: who may call, how long a call may wait for its message, and
the memory that messages take.

A call costs a task only when its first message is there. Source of names and codes: github.com/grpc/grpc,
doc/PROTOCOL-HTTP2.md and doc/statuscodes.md.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from edgekit.serve.grpc_message_cost import parsed_bytes
from edgekit.serve.grpc_messages import SERVICE, messages
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import RequestMemoryError
from edgekit.serve.service import public_error

if TYPE_CHECKING:
    from edgekit.serve.grpc_protocol import GrpcProtocol
    from edgekit.serve.request_memory import Lease
    from edgekit.serve.service import Service


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
MESSAGE_SECONDS = 30.0
"""In which the first message of a call must have come."""
WAITING = 256
"""Calls that wait for their first message; the oldest makes room for a further one."""
RPCS = 1024
"""Calls at once, streams included; more are refused before they are read. Those that may wait for a message,
and streams, are fewer."""
CROWD = 16
"""Calls of one address that wait for their first message; further ones begin one in ``fair_turns.SLOW_S``."""
STREAMS = 512
"""Streams of requests at once; more are refused."""
STREAM = "ModelStreamInfer"
OPEN = ("ServerLive", "ServerReady")
"""Without a token: for probes. Their messages are empty and not read."""
TIME_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""Characters of an error's text that are sent as they are."""
METADATA_BYTES, HEADER_BYTES = 16 << 10, 32
"""Size of a call's metadata, and what RFC 9113 (section 6.5.2) adds for each of them."""
PREFIX_BYTES = 5
"""Of a message: whether it is compressed, and its size."""

Handler = Callable[[Any, "Call", "Lease"], Awaitable[Any]]


class Calls:
    """The methods of the protocol, and their open calls.

    Args:
        service: Service that handles the calls.
        limit_bytes: Maximum size of a message.
        unary: Name -> handler: given a message, the call, and what holds the memory of the message.
        infer: Handles a stream: given an iterator of messages that are not parsed, and the call.

    Attributes:
        connections: Open connections.
    """

    def __init__(
        self,
        service: Service,
        limit_bytes: int,
        unary: Mapping[str, Handler],
        infer: Callable[[AsyncIterator[bytes], Any], AsyncIterator[Any]],
    ) -> None:
        self.connections: set[GrpcProtocol] = set()
        self._service, self._unary, self._infer = service, unary, infer
        self.limit_bytes = limit_bytes
        self._open: set[Call] = set()
        self._waiting: dict[Call, None] = {}  # in the order in which they began to wait
        self._crowds: Counter[str] = Counter()  # those that wait, by address
        self._streams = 0

    def crowded(self, network: str) -> bool:
        """Return whether many calls of an address wait for their first message."""
        return self._crowds[network] >= CROWD

    def begin(self, connection: GrpcProtocol, stream_id: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Begin a call of which the metadata are there, and nothing else."""
        call = Call(self, connection, stream_id, headers, self._service.memory.lease(connection.host))
        self._open.add(call)
        connection.calls[stream_id] = call
        try:
            name = self._method(call)
            call.start_deadline()
            if name in OPEN:
                self._run(call, b"")
            else:
                self._wait(call)
        except RequestError as problem:
            call.fail(problem)

    def _method(self, call: Call) -> str:
        """Return the name of the method that a call may use.

        Raises:
            RequestError: it may not.
        """
        service, _, name = call.path.removeprefix("/").rpartition("/")
        if service != SERVICE or (name not in self._unary and name != STREAM):
            raise RequestError("the service has no such method", 501)
        if name not in OPEN:
            self._service.access.check_token(call.header("authorization"))
        if sum(len(key) + len(value) + HEADER_BYTES for key, value in call.metadata) > METADATA_BYTES:
            raise RequestError(f"the metadata of a call have at most {METADATA_BYTES} bytes", 413)
        if len(self._open) > RPCS:
            raise RequestError(f"{RPCS} calls are open; retry in 1 s", 429, 1)
        if call.header("grpc-encoding") not in ("", "identity"):  # a few bytes could become many
            raise RequestError("messages must not be compressed", 415)
        if name == STREAM and self._streams >= STREAMS:
            raise RequestError(f"{STREAMS} streams are open; retry in 1 s", 429, 1)
        return name

    # --- waiting for the first message -------------------------------------------------------------------

    def _wait(self, call: Call) -> None:
        """Let a call wait for its first message.

        Raises:
            RequestError: the memory does not suffice.
        """
        while len(self._waiting) >= WAITING:
            self._end_oldest(call.lease.network)
        while True:
            try:
                call.lease.hold(self.limit_bytes)
                break
            except RequestMemoryError as problem:
                if not self._waiting or problem.retry_after_s is None:
                    raise
                self._end_oldest(call.lease.network)
        self._waiting[call] = None
        self._crowds[call.lease.network] += 1
        late = RequestError(f"the message did not come within {MESSAGE_SECONDS:g} s", 408)
        call.timer = asyncio.get_running_loop().call_later(MESSAGE_SECONDS, call.fail, late)

    def _end_oldest(self, network: str) -> None:
        """End the oldest that waits, of an address where it has one: nobody drives others out."""
        same_network = (waiting for waiting in self._waiting if waiting.lease.network == network)
        ended = next(same_network, None) or next(iter(self._waiting))
        ended.fail(RequestError("too many calls wait for their message; retry in 1 s", 429, 1))

    def first(self, call: Call, content: bytes) -> None:
        """Answer a call whose first message has come."""
        self._waits_no_more(call)
        if call.timer is not None:
            call.timer.cancel()
        self._run(call, content)

    def over(self, call: Call) -> None:
        """Forget a call that has ended."""
        self._open.discard(call)
        self._waits_no_more(call)
        call.lease.close()

    def _waits_no_more(self, call: Call) -> None:
        if call in self._waiting:
            del self._waiting[call]
            self._crowds[call.lease.network] -= 1
            if not self._crowds[call.lease.network]:
                del self._crowds[call.lease.network]

    # --- answers -----------------------------------------------------------------------------------------

    def _run(self, call: Call, content: bytes) -> None:
        call.connection.works()
        call.task = asyncio.get_running_loop().create_task(self._answer(call, content))

    async def _answer(self, call: Call, content: bytes) -> None:
        name = call.path.rpartition("/")[2]
        try:
            if name == STREAM:
                await self._stream(call, content)
            else:
                message = parsed(messages()[f"{name}Request"], content, call.lease)
                response = await self._unary[name](message, call, call.lease)
                await call.send(response.SerializeToString())
            call.end(Code.OK)
        except asyncio.TimeoutError:  # its client does not read
            call.cancel(ErrorCodes.CANCEL)
        except Exception as problem:
            call.fail(public_error(problem))
        finally:
            call.cancel()

    async def _stream(self, call: Call, content: bytes) -> None:
        async def all_of_them() -> AsyncIterator[bytes]:
            message: bytes | None = content
            while message is not None:
                yield message
                message = await call.read()

        self._streams += 1
        call.keeps_messages = True
        try:
            async for response in self._infer(all_of_them(), call):
                await call.send(response.SerializeToString())
        finally:
            self._streams -= 1


class Call:
    """One call.

    Args:
        calls: The others.
        connection: Its connection.
        stream_id: Its number there.
        headers: The client's.
        lease: Holds the memory of its messages.

    Attributes:
        host: Address of the client.
        path: ``/SERVICE/METHOD``.
        metadata: What the client sends beside its messages.
        trailing: What is sent beside the code of the answer.
        timer: Ends the wait for the first message.
        task: Answers the call; None before its first message.
        keeps_messages: Whether further messages are read.
    """

    def __init__(
        self,
        calls: Calls,
        connection: GrpcProtocol,
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
        late = RequestError("the deadline of the call has passed", 408)
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.fail, late)

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


def parsed(kind: Any, content: bytes, lease: Lease) -> Any:
    """Return a message of a kind from its bytes, and hold what it takes.

    Raises:
        RequestError: it is not valid, or ``Lease.hold`` fails.
    """
    lease.hold(parsed_bytes(content))
    try:
        return kind.FromString(content)
    except Exception:  # protobuf's DecodeError
        raise RequestError("the message is not one of the Open Inference Protocol") from None
