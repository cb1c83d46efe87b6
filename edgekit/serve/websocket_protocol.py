"""uvicorn's WebSocket on websockets, whose messages are held in the memory for requests.

Without compression (``server.py``) a message takes what the client sent; it still comes in parts, and waits
until the app takes it.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from edgekit.serve.http_protocol import CLOSING_SECONDS, UNREAD_SECONDS
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.paced_protocol import PacedProtocol
from edgekit.serve.request_memory import Lease

FRAMES = 4096
"""Maximum number of frames of one message; each takes memory, however few bytes it has."""
COPIES = 2
"""Copies of a message in memory: the received bytes, and the parsed message."""
UNREAD_BYTES = 1 << 20
"""Answers to pings, and others, that a client has not read."""
RELEASED_BYTES, RELEASED_BYTES_PER_SECOND = 1 << 20, 1 << 30
"""A closed connection gives so much memory back at once. More of it waits for its turn, and the turns of an
address lie as far apart as this speed has it."""


class WebSocketProtocol(PacedProtocol, WebSocketsSansIOProtocol):
    """One connection, from its handshake on."""

    _lease: Lease | None = None
    _unread: asyncio.TimerHandle | None = None
    _queued_bytes = _framed_bytes = 0
    _is_lost = False

    def connection_made(self, transport: Any) -> None:
        """Begin to count its bytes."""
        super().connection_made(transport)
        app = cast("Any", self.config).loaded_app
        self.open_connections = app.open_connections
        self._lease = app.memory.lease(self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its memory back: a large message in a later turn, because the system takes its time for it,
        and a client may close many connections at once."""
        super().connection_lost(exc)
        self.resume_writing()
        self.drop_held()
        while self.queue.qsize() > 1:  # the app takes nothing but the end any more
            self.queue.get_nowait()
        network = self.open_connections.network(self.transport)
        self.open_connections.closed(self.transport)
        size_bytes = self._lease.size_bytes if self._lease is not None else 0
        if size_bytes <= RELEASED_BYTES:
            self._release()
        else:
            self._is_lost = True
            self.open_connections.turns.wait_slowly(network, self, size_bytes / RELEASED_BYTES_PER_SECOND)

    def process_held(self) -> None:
        """Process the data that was held; after the end, give its memory back."""
        if self._is_lost:
            self._release()
        else:
            super().process_held()

    def _release(self) -> None:
        cast("Any", self.conn).reader.buffer.clear()
        self.frames = []
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def process(self, data: bytes) -> None:
        """Hold bytes until the app has answered the message that they belong to."""
        if self.close_sent or self.transport.is_closing():
            return
        if cast("Any", self.transport).get_write_buffer_size() > UNREAD_BYTES:
            self.transport.abort()
            return
        try:
            if self._lease is not None and self.handshake_complete:
                self._lease.hold(self._lease.size_bytes + COPIES * len(data))
        except RequestError as problem:
            self._fail(CloseCode.TRY_AGAIN_LATER, str(problem))
            return
        WebSocketsSansIOProtocol.data_received(self, data)
        self._hold_what_is_left()

    def reading_is_paused(self) -> bool:
        """Return whether the app is to take a message before more is read."""
        return self.read_paused

    def _hold_what_is_left(self) -> None:
        if self._lease is not None:
            begun = len(cast("Any", self.conn).reader.buffer)
            self._lease.hold(COPIES * (begun + self._framed_bytes + self._queued_bytes))

    def handle_cont(self, event: Any) -> None:
        """Take a further frame of a message."""
        if len(self.frames) >= FRAMES:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message has at most {FRAMES} frames")
            return
        self._framed_bytes += len(event.data)
        super().handle_cont(event)

    def handle_text(self, event: Any) -> None:
        """Take the first frame of a text."""
        self._framed_bytes = len(event.data)
        super().handle_text(event)

    def handle_bytes(self, event: Any) -> None:
        """Take the first frame of a picture."""
        self._framed_bytes = len(event.data)
        super().handle_bytes(event)

    def send_receive_event_to_app(self) -> None:
        """Hand a message over; of a text, which is not a picture, nothing but that it came."""
        self._queued_bytes, self._framed_bytes = self._queued_bytes + self._framed_bytes, 0
        if self.curr_msg_data_type == "text":
            self.frames = [b""]
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        """Give the app the next message; it is done with those before."""
        if self.queue.empty():
            self._queued_bytes = 0
            self._hold_what_is_left()
        return await super().receive()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason[:120])
        self.handle_parser_exception()
        self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer; it may not read either."""
        super().keepalive_timeout()
        self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """Give the client a time in which to read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
