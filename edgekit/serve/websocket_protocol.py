"""uvicorn's WebSocket on websockets, whose messages are held in the memory for requests.

A message is not compressed (``server.py``), so it takes what the client sent. It arrives in parts, and waits
until the app takes it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from edgekit.serve.connection_watch import CLOSING_SECONDS, Watched
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.request_memory import Lease

FRAMES = 4096
"""Maximum number of frames of one message; each takes memory, however few bytes it has."""
PINGS = 64
"""Maximum number of pings of a connection within a second."""
COPIES = 2
"""Copies of a message in memory: the received bytes, and the parsed message."""
UNREAD_BYTES = 1 << 20
"""Maximum size of answers to pings, and others, that a client has not read."""
PIECE_BYTES = 16 << 10
"""Bytes that are parsed before the limits are checked again."""


class WebSocketProtocol(Watched, WebSocketsSansIOProtocol):
    """One connection, from its handshake on."""

    _lease: Lease | None = None
    _held_bytes = _pings = 0
    _rest = b""
    _pings_since_s = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.opened_s = time.monotonic()
        memory = cast("Any", self.config).loaded_app.memory
        self._lease = memory.lease(self.client[0] if self.client else "")

    def connection_lost(self, exc: Exception | None) -> None:
        """Release its memory."""
        super().connection_lost(exc)
        while self.queue.qsize() > 1:  # the app takes nothing but the end
            self.queue.get_nowait()
        cast("Any", self.conn).reader.buffer.clear()
        self.frames, self._rest = [], b""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def data_received(self, data: bytes) -> None:
        """Parse bytes up to the end of a message, and hold their memory until the app has taken it."""
        data, self._rest = self._rest + data, b""
        for start in range(0, len(data), PIECE_BYTES):
            if self.close_sent or self.transport.is_closing():
                return
            if cast("Any", self.transport).get_write_buffer_size() > UNREAD_BYTES:
                self.transport.abort()
                return
            if not self.queue.empty() and self.handshake_complete:
                self._rest = data[start:]
                return
            piece = data[start : start + PIECE_BYTES]
            if self.handshake_complete and self._lease is not None:
                try:
                    self._lease.hold(COPIES * (self._held_bytes + len(piece)))
                except RequestError as problem:
                    self._fail(CloseCode.TRY_AGAIN_LATER, str(problem))
                    return
                self._held_bytes += len(piece)
            super().data_received(piece)
        if not self.frames and self.queue.empty():
            self._release()

    def _release(self) -> None:
        """Hold only the bytes of a frame that is not complete."""
        self._held_bytes = len(cast("Any", self.conn).reader.buffer)
        if self._lease is not None:
            self._lease.hold(COPIES * self._held_bytes)

    def handle_cont(self, event: Any) -> None:
        if len(self.frames) >= FRAMES:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"a message has at most {FRAMES} frames")
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        super().handle_ping()
        self._pings += 1
        if self._pings > PINGS:
            now_s = time.monotonic()
            if now_s < self._pings_since_s + 1:
                self._fail(CloseCode.POLICY_VIOLATION, f"more than {PINGS} pings in a second")
            self._pings, self._pings_since_s = 0, now_s

    def send_receive_event_to_app(self) -> None:
        """Hand a message over. Drop the content of a text message, which is not an image."""
        if self.curr_msg_data_type == "text":
            self.frames = [b""]
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        """Give the app the next message. It has processed those before."""
        if not self.queue.empty():
            await asyncio.sleep(0)  # others have a turn between the messages that came at once
        elif not self.disconnected:
            if not self.frames:
                self._release()
            self.data_received(b"")
        return await super().receive()

    def _fail(self, code: int, reason: str) -> None:
        self.conn.fail(code, reason[:120])
        self.handle_parser_exception()
        self.due_s = time.monotonic() + CLOSING_SECONDS

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer. It may not read either."""
        super().keepalive_timeout()
        self.due_s = time.monotonic() + CLOSING_SECONDS
