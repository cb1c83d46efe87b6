"""Calls of gRPC before and around their handlers: who may call, how long a call may wait for its message, and
the memory that messages take.

A call costs a task only when its first message is there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from h2.errors import ErrorCodes

from edgekit.serve.grpc_call import STREAM, CallConnection, Code, GrpcCall
from edgekit.serve.grpc_message_cost import parsed_bytes
from edgekit.serve.grpc_messages import SERVICE, messages
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import Lease, RequestMemoryError
from edgekit.serve.service import Service, public_error

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
OPEN = ("ServerLive", "ServerReady")
"""Without a token: for probes. Their messages are empty and not read."""
METADATA_BYTES, HEADER_BYTES = 16 << 10, 32
"""Size of a call's metadata, and what RFC 9113 (section 6.5.2) adds for each of them."""
Handler = Callable[[Any, "GrpcCall", "Lease"], Awaitable[Any]]


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
        self.connections: set[CallConnection] = set()
        self._service, self._unary, self._infer = service, unary, infer
        self.limit_bytes = limit_bytes
        self._open: set[GrpcCall] = set()
        self._waiting: dict[GrpcCall, None] = {}  # in the order in which they began to wait
        self._crowds: Counter[str] = Counter()  # those that wait, by address
        self._streams = 0

    def crowded(self, network: str) -> bool:
        """Return whether many calls of an address wait for their first message."""
        return self._crowds[network] >= CROWD

    def begin(
        self, connection: CallConnection, stream_id: int, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Begin a call of which the metadata are there, and nothing else."""
        call = GrpcCall(self, connection, stream_id, headers, self._service.memory.lease(connection.host))
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

    def _method(self, call: GrpcCall) -> str:
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

    def _wait(self, call: GrpcCall) -> None:
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
        overdue = RequestError(f"the message did not come within {MESSAGE_SECONDS:g} s", 408)
        call.timer = asyncio.get_running_loop().call_later(MESSAGE_SECONDS, call.fail, overdue)

    def _end_oldest(self, network: str) -> None:
        """End the oldest that waits, of an address where it has one: nobody drives others out."""
        same_network = (waiting for waiting in self._waiting if waiting.lease.network == network)
        ended = next(same_network, None) or next(iter(self._waiting))
        ended.fail(RequestError("too many calls wait for their message; retry in 1 s", 429, 1))

    def first(self, call: GrpcCall, content: bytes) -> None:
        """Answer a call whose first message has come."""
        self._waits_no_more(call)
        if call.timer is not None:
            call.timer.cancel()
        self._run(call, content)

    def over(self, call: GrpcCall) -> None:
        """Forget a call that has ended."""
        self._open.discard(call)
        self._waits_no_more(call)
        call.lease.close()

    def _waits_no_more(self, call: GrpcCall) -> None:
        if call in self._waiting:
            del self._waiting[call]
            self._crowds[call.lease.network] -= 1
            if not self._crowds[call.lease.network]:
                del self._crowds[call.lease.network]

    # --- answers -----------------------------------------------------------------------------------------

    def _run(self, call: GrpcCall, content: bytes) -> None:
        call.connection.works()
        call.task = asyncio.get_running_loop().create_task(self._answer(call, content))

    async def _answer(self, call: GrpcCall, content: bytes) -> None:
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

    async def _stream(self, call: GrpcCall, content: bytes) -> None:
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
