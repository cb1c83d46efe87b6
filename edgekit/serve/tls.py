"""TLS of a server: its certificate, and the authority that signs its clients' (mutual TLS).

Handshakes count as connections: the event loops' own TLS reports none before its end.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.serve.connection_watch import Watched

HANDSHAKE_SECONDS = 15.0
"""Time for a handshake. uvicorn has no option for it, and event loops wait for a minute."""


@dataclass(frozen=True)
class Tls:
    """PEM files.

    Attributes:
        certificate: The server's, with those between it and its authority.
        key: Its private key, without a password.
        clients: The authority of the clients' certificates. None means clients need none.
    """

    certificate: str
    key: str
    clients: str | None = None

    def uvicorn_options(self) -> dict[str, Any]:
        """Return the TLS options for ``uvicorn.Config``."""
        options: dict[str, Any] = {"ssl_certfile": self.certificate, "ssl_keyfile": self.key}
        if self.clients is not None:
            options |= {"ssl_ca_certs": self.clients, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    def grpc_credentials(self) -> Any:
        """Return the credentials of a gRPC server."""
        import grpc

        pair = (Path(self.key).read_bytes(), Path(self.certificate).read_bytes())
        clients = None if self.clients is None else Path(self.clients).read_bytes()
        return grpc.ssl_server_credentials([pair], clients, require_client_auth=clients is not None)


def tls_of(certificate: Path | None, key: Path | None, clients: Path | None) -> Tls | None:
    """Return TLS by the options of the command line, or None without them.

    Raises:
        UsageError: one is missing, or can't be used.
    """
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        raise UsageError("TLS needs both --tls-cert and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as problem:  # ssl.SSLError is an OSError
        raise UsageError(
            f"{certificate} and {key} can't be used as a certificate and its key: {_reason(problem)}"
        ) from None
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except (OSError, ValueError) as problem:
            raise UsageError(f"{clients} does not hold a certificate: {_reason(problem)}") from None
    return Tls(str(certificate), str(key), None if clients is None else str(clients))


def _no_password() -> str:
    raise ValueError("the key has a password; save it without one, readable by this user only")


def _reason(problem: Exception) -> str:
    return getattr(problem, "reason", None) or getattr(problem, "strerror", None) or str(problem)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop for uvicorn, or asyncio's if uvloop is not installed."""
    loop: Any
    try:
        import uvloop
    except ImportError:  # Windows
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    create_server = loop.create_server

    async def with_handshakes(make: Callable[[], Any], *config: Any, **options: Any) -> Any:
        context = options.pop("ssl", None)
        if context is None:
            return await create_server(make, *config, **options)
        return await create_server(lambda: TlsHandshake(make, context), *config, **options)

    loop.create_server = with_handshakes
    event_loop: asyncio.AbstractEventLoop = loop
    return event_loop


class TlsHandshake(Watched, asyncio.Protocol):
    """A connection until the end of its handshake. uvicorn's protocol takes its place then."""

    def __init__(self, make: Callable[[], Any], context: ssl.SSLContext) -> None:
        self._protocol, self._context = make(), context
        self._connections: set[Any] = self._protocol.connections
        self._received = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and begin its handshake."""
        self.transport, self.client = transport, transport.get_extra_info("peername")
        self.opened_s = time.monotonic()
        self.due_s = self.opened_s + HANDSHAKE_SECONDS
        self._connections.add(self)
        self._protocol.watch.opened(self._connections)
        if transport.is_closing():
            self._connections.discard(self)
            return
        loop = asyncio.get_running_loop()
        steps: Any = loop.start_tls(
            transport, self, self._context, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
        )
        waiting = steps.send(None)  # now: uvloop reads before a task begins, and cannot pause here
        self._task = loop.create_task(self._shake_hands(transport, steps, waiting))

    def data_received(self, data: bytes) -> None:
        """Keep a request that came with the end of the handshake."""
        self._received += data

    def shutdown(self) -> None:
        """Close the connection, because the server ends."""
        self.transport.abort()

    async def _shake_hands(self, transport: Any, steps: Any, waiting: asyncio.Future[None]) -> None:
        secure: Any = None
        try:
            await asyncio.wait([waiting])
            steps.send(None)
        except StopIteration as end:
            secure = end.value
        except OSError:  # with ssl.SSLError and the time limit
            pass
        finally:
            self._task = None  # else the connection refers to itself, and stays until the next collection
            self._connections.discard(self)
        if secure is None or transport.is_closing():  # uvloop's handshake also ends if it was closed
            transport.abort()
            return
        secure.set_protocol(self._protocol)
        self._protocol.connection_made(secure)
        if self._received and not secure.is_closing():
            self._protocol.data_received(self._received)
