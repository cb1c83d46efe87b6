"""Handshakes of TLS, which count as connections: the event loops' own TLS reports none before its end."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

from edgekit.serve.connection_watch import Watched

HANDSHAKE_SECONDS = 15.0
"""Time for a handshake. uvicorn has no option for it, and event loops wait for a minute."""


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
