"""The event loop of a server: uvloop's where it is installed. Handshakes of TLS count as connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.serve.connections import Connections

HANDSHAKE_SECONDS = 15.0
"""In which a handshake must have ended. uvicorn has no option for it, and the loops wait a minute."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop for uvicorn."""
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
        table = make().config.loaded_app.open_connections
        return await create_server(lambda: TlsHandshake(make, context, table), *config, **options)

    loop.create_server = with_handshakes
    event_loop: asyncio.AbstractEventLoop = loop
    return event_loop


class TlsHandshake(asyncio.Protocol):
    """Connection until its handshake has ended: the loops' own TLS tells nobody of it before.

    Args:
        make: Returns uvicorn's protocol of a connection.
        context: TLS of the server.
        connections: Open connections of this process.
    """

    def __init__(self, make: Callable[[], Any], context: ssl.SSLContext, connections: Connections) -> None:
        self._make, self._context, self._connections = make, context, connections
        self._received = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and begin its handshake."""
        peer = transport.get_extra_info("peername")
        if not self._connections.open(transport, str(peer[0]) if peer else ""):
            transport.abort()
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
            self._connections.closed(transport)
        if secure is None or transport.is_closing():  # uvloop's handshake also ends where it was dropped
            transport.abort()
            return
        protocol = self._make()
        secure.set_protocol(protocol)
        protocol.connection_made(secure)  # which counts it again
        if self._received and not secure.is_closing():
            protocol.data_received(self._received)
