"""gRPC by grpcio's threaded server: who may call, how many calls are read, and how long each may take.

Not by ``grpc.aio``: a call whose path is not UTF-8 ends its server (1.84 and 1.85). Every method is a
*stream* handler, unary ones too: grpcio reads the whole message before it calls a unary handler, and a stream
handler reads it after the token, the place and the memory were checked. Reasons: docs/decisions/0062-*.md
Options: grpc.github.io/grpc/core/group__grpc__arg__keys.html
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool

from edgekit.errors import UsageError
from edgekit.serve.connection_watch import network_of
from edgekit.serve.grpc_message_cost import parsed_bytes
from edgekit.serve.grpc_messages import SERVICE, messages
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import RequestMemoryError
from edgekit.serve.service import public_error

if TYPE_CHECKING:
    from edgekit.serve.request_memory import Lease
    from edgekit.serve.service import Service
    from edgekit.serve.tls import Tls

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else a client writes the log: a line for each bad header
import grpc

THREADS, CALLS = 64, 48
"""Number of threads, and maximum number of calls that are read. The other threads are for refusals."""
RPCS = 256
"""Maximum number of calls that have begun; further ones are refused without a thread."""
ADDRESS_CALLS = 32
"""The share of an address is taken of these calls, so that two addresses leave the rest for others."""
CONNECTION_CALLS = 32
CONNECTION_SECONDS, LAST_SECONDS = 300, 30
"""Age at which a connection takes no further calls, and time in which its calls must end. Nothing else ends a
call whose client does not read its answer."""
IDLE_SECONDS = 30
MESSAGE_SECONDS = 5.0
"""Time in which the first message of a call must arrive, and in which a client must read one of a stream."""
STREAM_SECONDS = 30.0
"""Time in which a further message of a stream must arrive."""
HANDSHAKE_SECONDS = 5
METADATA_BYTES = 16 << 10
OPEN = ("ServerLive", "ServerReady")
"""Methods for probes, which need no token. Their messages are empty and are not read."""
STREAM = "ModelStreamInfer"

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""Status of HTTP -> code of gRPC."""

T = TypeVar("T")
Unary = Callable[[Any, "GrpcCall", "Lease"], Any]
Streamed = Callable[[bytes, "GrpcCall"], Any]


def options(limit_bytes: int, connections: int) -> list[tuple[str, int]]:
    """Return the options of the server.

    Args:
        connections: Maximum number of connections; further ones are closed at once.
    """
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", CONNECTION_CALLS),
        ("grpc.max_receive_message_length", limit_bytes),
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a few bytes could become many
        ("grpc.max_metadata_size", METADATA_BYTES),  # below the absolute limit, gRPC refuses at random
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.http2.lookahead_bytes", 65535),
        ("grpc.http2.bdp_probe", 0),  # it would widen the window of unread data
        ("grpc.http2.max_frame_size", 16384),
        ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_SECONDS),
        ("grpc.http2.settings_timeout", 1000 * HANDSHAKE_SECONDS),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.max_connection_idle_ms", 1000 * IDLE_SECONDS),
        ("grpc.max_connection_age_ms", 1000 * CONNECTION_SECONDS),
        ("grpc.max_connection_age_grace_ms", 1000 * LAST_SECONDS),
        ("grpc.so_reuseport", 0),  # another server has the port: an error
    ]


def host_of_peer(peer: str) -> str:
    """Return the address of a client as grpcio writes it.

    >>> host_of_peer("ipv4:192.0.2.7:5121"), host_of_peer("ipv6:%5B2001:db8::1%5D:80")
    ('192.0.2.7', '2001:db8::1')
    """
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


class GrpcCall:
    """One call, in its thread.

    Attributes:
        metadata: Names in lower case and values that the client sent.
        trailing: Metadata that are sent with the code of the response.
    """

    def __init__(self, context: Any) -> None:
        self.context, self.host = context, host_of_peer(context.peer())
        self.metadata: list[tuple[str, Any]] = [(key, value) for key, value in context.invocation_metadata()]
        self.trailing: list[tuple[str, str]] = []
        self._running: Future[Any] | None = None
        self._is_over = not context.add_callback(self._end)

    def header(self, name: str) -> str:
        """Return the value of a metadata key, or "" if the client did not send it."""
        return str(next((value for key, value in self.metadata if key == name), ""))

    def headers(self) -> dict[bytes, bytes]:
        """Return the metadata of texts as HTTP's headers are."""
        return {key.encode(): value.encode() for key, value in self.metadata if isinstance(value, str)}

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline, or None if it has none."""
        seconds: float | None = self.context.time_remaining()
        return seconds

    def result(self, running: Future[T]) -> T:
        """Wait for a result, and cancel the work if the client ends the call.

        Raises:
            RequestError: it was cancelled. As the work.
        """
        self._running = running
        if self._is_over:
            running.cancel()
        try:
            return running.result()
        except CancelledError:
            raise RequestError("the call was ended, or the server is shutting down", 503, 1) from None
        finally:
            self._running = None

    def _end(self) -> None:
        self._is_over = True
        if (running := self._running) is not None:
            running.cancel()

    def send_trailing(self) -> None:
        """Send the trailing metadata with the code of the response."""
        if self.trailing:
            self.context.set_trailing_metadata(tuple(self.trailing))

    def fail(self, problem: RequestError) -> None:
        """End the call with the code of an error; raises grpcio's exception."""
        if problem.retry_after_s is not None:
            self.trailing.append(("retry-after", str(problem.retry_after_s)))
        self.send_trailing()
        code = CODES.get(problem.status, grpc.StatusCode.INTERNAL)
        if isinstance(problem, RequestMemoryError):
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        self.context.abort(code, str(problem))


class Places:
    """Places for calls that are read. A refusal needs none.

    Args:
        address_share: Share of the places that one address may have; 1: all of them.
    """

    def __init__(self, address_share: float) -> None:
        self._address = CALLS if address_share >= 1 else max(1, int(ADDRESS_CALLS * address_share))
        self._lock, self._used = threading.Lock(), 0
        self._networks: Counter[str] = Counter()

    @contextmanager
    def taken(self, host: str) -> Iterator[None]:
        """Hold a place.

        Raises:
            RequestError: all are taken, or those of the address.
        """
        network = network_of(host)
        with self._lock:
            if self._used >= CALLS:
                raise RequestError(f"{CALLS} calls are open; retry in 1 s", 429, 1)
            if self._networks[network] >= self._address:
                raise RequestError(f"{self._address} calls of this address are open; retry in 1 s", 429, 1)
            self._used += 1
            self._networks[network] += 1
        try:
            yield
        finally:
            with self._lock:
                self._used -= 1
                self._networks[network] -= 1
                if not self._networks[network]:
                    del self._networks[network]


class TimeLimits:
    """Thread that cancels calls whose client is too slow: grpcio has no time limit for a message."""

    def __init__(self) -> None:
        self._lock, self._due_s = threading.Lock(), dict[Any, float]()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgekit-grpc-time-limits", daemon=True)
        self._thread.start()

    @contextmanager
    def limited(self, call: GrpcCall, seconds: float) -> Iterator[None]:
        """Cancel the call if the block takes longer."""
        with self._lock:
            self._due_s[call] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                del self._due_s[call]

    def _run(self) -> None:
        while not self._ends.wait(min(1.0, MESSAGE_SECONDS / 5)):
            now_s = time.monotonic()
            with self._lock:
                overdue = [call for call, due_s in self._due_s.items() if due_s < now_s]
            for call in overdue:
                call.context.cancel()

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self._thread.join()


class GrpcServer:
    """A gRPC server on a port of its own. Clients that connect before it starts wait.

    Attributes:
        port: Port; the system's choice if that of ``target`` is 0.

    Raises:
        UsageError: the address can't be used.
    """

    def __init__(
        self,
        target: str,
        limit_bytes: int,
        connections: int,
        address_share: float,
        tls: Tls | None = None,
    ) -> None:
        self._limit_bytes, self._places, self._limits = limit_bytes, Places(address_share), TimeLimits()
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, "edgekit-grpc"),
            options=options(limit_bytes, connections),
            maximum_concurrent_rpcs=RPCS,
        )
        try:
            if tls is None:
                self.port: int = self._server.add_insecure_port(target)
            else:
                self.port = self._server.add_secure_port(target, tls.grpc_credentials())
        except RuntimeError as problem:
            self._limits.close()
            raise UsageError(f"gRPC can't listen on {target}: {problem}") from None

    def start(self, service: Service, unary: Mapping[str, Unary], streamed: Streamed) -> None:
        """Begin to respond."""
        handlers = {name: self._unary(service, name, handler) for name, handler in unary.items()}
        handlers[STREAM] = self._stream(service, streamed)
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        self._server.start()

    async def close(self, seconds: float) -> None:
        """Take no further calls, and cancel those that still run after so many seconds."""
        await run_in_threadpool(self._server.stop(seconds).wait)
        self._limits.close()

    @contextmanager
    def _admitted(self, service: Service, call: GrpcCall) -> Iterator[Lease]:
        """Check the token, and hold a place and the memory of the largest message."""
        service.access.check_token(call.header("authorization"))
        with self._places.taken(call.host), service.memory.lease(call.host) as lease:
            lease.hold(self._limit_bytes)
            yield lease

    def _next(self, requests: Iterator[bytes], call: GrpcCall, seconds: float) -> bytes | None:
        with self._limits.limited(call, seconds):
            return next(requests, None)

    def _unary(self, service: Service, name: str, handler: Unary) -> Any:
        kind = messages()[f"{name}Request"]

        def respond(requests: Iterator[bytes], call: GrpcCall) -> Any:
            if name in OPEN:
                return handler(kind(), call, service.memory.lease(call.host))
            with self._admitted(service, call) as lease:
                content = self._next(requests, call, MESSAGE_SECONDS)
                if content is None:
                    raise RequestError("the call has no message")
                return handler(parsed(kind, content, lease), call, lease)

        def handle(requests: Iterator[bytes], context: Any) -> Any:
            call = GrpcCall(context)
            try:
                response = respond(requests, call)
            except grpc.RpcError:  # the call has ended
                raise
            except Exception as problem:
                error = public_error(problem)
            else:
                call.send_trailing()
                return response.SerializeToString()
            return call.fail(error)

        return grpc.stream_unary_rpc_method_handler(handle)

    def _stream(self, service: Service, streamed: Streamed) -> Any:
        def handle(requests: Iterator[bytes], context: Any) -> Generator[bytes, None, None]:
            call, seconds = GrpcCall(context), MESSAGE_SECONDS
            try:
                with self._admitted(service, call):
                    while (content := self._next(requests, call, seconds)) is not None:
                        response, seconds = streamed(content, call).SerializeToString(), STREAM_SECONDS
                        with self._limits.limited(call, MESSAGE_SECONDS):  # waits for its client to read
                            yield response
                return
            except grpc.RpcError:
                raise
            except Exception as problem:
                error = public_error(problem)
            call.fail(error)

        return grpc.stream_stream_rpc_method_handler(handle)


def parsed(kind: Any, content: bytes, lease: Lease) -> Any:
    """Parse a message, and hold the memory that it takes.

    Raises:
        RequestError: it is not valid, or ``Lease.hold`` fails.
    """
    lease.hold(parsed_bytes(content))
    try:
        return kind.FromString(content)
    except Exception:  # protobuf's DecodeError
        raise RequestError("the message is not one of the Open Inference Protocol") from None
