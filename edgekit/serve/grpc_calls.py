"""Calls of gRPC before and around their handlers: who may call, how long a call may wait for its message, and
the memory that messages take.

gRPC reads the message of a unary call before it calls the handler. Here each method is registered as one
whose client streams, which is the same on the wire: its handler is called with the metadata alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc

from edgekit.serve.fair_turns import FairTurns
from edgekit.serve.grpc_message_cost import parsed_bytes
from edgekit.serve.grpc_messages import SERVICE, messages
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import RequestMemoryError
from edgekit.serve.service import public_error

if TYPE_CHECKING:
    from edgekit.serve.request_memory import Lease
    from edgekit.serve.service import Service

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
MESSAGE_SECONDS = 30.0
"""In which the first message of a call must have come."""
WAITING = 256
"""Calls that wait for their first message; the oldest makes room for a further one."""
STREAMS = 512
"""Streams of requests at once; more are refused."""
OPEN = ("ServerLive", "ServerReady")
"""Without a token: for probes. Their messages are empty and not read."""

Handler = Callable[[Any, Any, "Lease"], Awaitable[Any]]


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The methods of the protocol.

    Args:
        service: Service that handles the calls.
        limit_bytes: Maximum size of a message.
        unary: Name -> handler: given a message, the context, and what holds the memory of the message.
        infer: Handles a stream: given an iterator of messages that are not parsed, and the context.
    """

    def __init__(
        self,
        service: Service,
        limit_bytes: int,
        unary: Mapping[str, Handler],
        infer: Callable[[AsyncIterator[bytes], Any], AsyncIterator[Any]],
    ) -> None:
        self._service, self._limit_bytes, self._infer = service, limit_bytes, infer
        self._waiting: dict[_Waiting, None] = {}  # in the order in which they began to wait
        self._streams, self._turns = 0, FairTurns()
        self._handlers = {
            name: grpc.stream_unary_rpc_method_handler(
                self._unary(name, handler), None, lambda message: message.SerializeToString()
            )
            for name, handler in unary.items()
        }
        self._handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream, None, lambda message: message.SerializeToString()
        )

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call whose metadata are there, and nothing else of it."""
        _, _, name = handler_call_details.method.rpartition("/")
        if name not in self._handlers or handler_call_details.method != f"/{SERVICE}/{name}":
            return None
        try:
            if name not in OPEN:
                self._service.access.check_token(authorization(handler_call_details.invocation_metadata))
        except RequestError as problem:
            return _refusal(problem)
        return self._handlers[name]

    def _unary(self, name: str, handler: Handler) -> Callable[[Any, Any], Awaitable[Any]]:
        parse = messages()[f"{name}Request"]

        async def answer(requests: Any, context: Any) -> Any:
            try:
                with self._service.memory.lease(host_of(context)) as lease:
                    if name in OPEN:
                        return await handler(parse(), context, lease)
                    content = await self._first(context, lease)
                    return await handler(parsed(parse, content, lease), context, lease)
            except Exception as problem:
                await abort(context, public_error(problem))

        return answer

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        with self._service.memory.lease(host_of(context)) as lease:  # for the message that comes next
            try:
                if self._streams >= STREAMS:
                    raise RequestError(f"{STREAMS} streams are open; retry in 1 s", 429, 1)
                first = await self._first(context, lease)
            except Exception as problem:
                await abort(context, public_error(problem))
                return

            async def all_of_them() -> AsyncIterator[bytes]:
                yield first
                async for content in requests:
                    yield content

            self._streams += 1
            try:
                async for response in self._infer(all_of_them(), context):
                    yield response
            finally:
                self._streams -= 1

    async def _first(self, context: Any, lease: Lease) -> bytes:
        """Wait for the first message of a call, and for the turn of the call.

        Raises:
            RequestError: it does not come in time, or others want the place.
        """
        while len(self._waiting) >= WAITING:
            self._end_oldest(lease.network)
        while True:
            try:
                lease.hold(self._limit_bytes)
                break
            except RequestMemoryError as problem:
                if not self._waiting or problem.retry_after_s is None:
                    raise
                self._end_oldest(lease.network)
        waiting = _Waiting(lease)
        self._waiting[waiting] = None
        try:
            content = await context.read()
        except asyncio.CancelledError:
            if not waiting.ends_with_error():
                raise
            content = None
        finally:
            waiting.timer.cancel()
            self._waiting.pop(waiting, None)
        await self._turns.turn(lease.network)
        if waiting.problem is not None:
            raise waiting.problem
        if content is grpc.aio.EOF:
            raise RequestError("the call has no message")
        message: bytes = content
        return message

    def _end_oldest(self, network: str) -> None:
        """End the oldest that waits, of an address where it has one: nobody drives others out."""
        same_network = (waiting for waiting in self._waiting if waiting.lease.network == network)
        ended = next(same_network, None) or next(iter(self._waiting))
        del self._waiting[ended]
        ended.lease.close()
        ended.end(RequestError("too many calls wait for their message; retry in 1 s", 429, 1))


class _Waiting:
    """A call that waits for its first message, in the running task.

    Not ``asyncio.wait``: its task and its future cost more than gRPC itself takes for a call, and a flood of
    calls delays those behind it by what each costs.

    Args:
        lease: Holds the memory of the message.

    Attributes:
        problem: Error with which the wait ends; None: none yet.
        timer: Ends the wait when its time is over.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.problem: RequestError | None = None
        self.timer = asyncio.get_running_loop().call_later(MESSAGE_SECONDS, self._expire)
        self._task: Any = asyncio.current_task()

    def _expire(self) -> None:
        self.end(RequestError(f"the message did not come within {MESSAGE_SECONDS:g} s", 408))

    def end(self, problem: RequestError) -> None:
        """End the wait with an error."""
        self.problem = problem
        self._task.cancel()

    def ends_with_error(self) -> bool:
        """Return whether the task was cancelled by ``end``, and let it go on; False: gRPC ended the call."""
        if self.problem is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
            self._task.uncancel()
        return self.problem is not None


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


def _refusal(problem: RequestError) -> Any:
    """Return a handler that reads nothing."""

    async def refuse(requests: Any, context: Any) -> Any:
        await abort(context, problem)

    return grpc.stream_unary_rpc_method_handler(refuse)


def authorization(metadata: Any) -> str:
    """Return the value of ``authorization``; "" where there is none."""
    value = dict(metadata or ()).get("authorization", "")
    return value if isinstance(value, str) else ""


def host_of(context: Any) -> str:
    """Return the address of a call's client.

    gRPC names it ``ipv4:192.0.2.7:50000`` or ``ipv6:[2001:db8::1]:50000``, with ``%5B`` for the bracket.
    """
    peer = str(context.peer()).replace("%5B", "[").replace("%5D", "]")
    kind, _, rest = peer.partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""


async def abort(context: Any, problem: RequestError) -> None:
    """End a call with the code of an error."""
    trailing = tuple(context.trailing_metadata() or ())  # ``abort`` replaces them
    if problem.retry_after_s is not None:
        trailing = (*trailing, ("retry-after", str(problem.retry_after_s)))
    code = CODES.get(problem.status, grpc.StatusCode.INTERNAL)
    if isinstance(problem, RequestMemoryError):
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
    await context.abort(code, str(problem), trailing)
