"""uvicorn's HTTP on httptools, with limits on what a client sends and on how long the server waits for it.

uvicorn closes connections that are idle after a request. It does not bound a head, nor the time for the rest
of a body after an early answer, nor the time in which an answer is read, nor the number of connections.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.serve.paced_protocol import PacedProtocol
from edgekit.serve.request_body import BEGAN, DISCARDED_BYTES

HEAD_SECONDS = 15.0
KEPT_SECONDS = 30.0
"""After which an idle connection is closed."""
REST_SECONDS = 10.0
"""For the rest of a request that was answered before all of it came."""
UNREAD_SECONDS = 30.0
"""In which a client must read on, while its answer does not fit into the buffers of the connection."""
CLOSING_SECONDS = 5.0
"""For the last bytes of a connection that is being closed."""
HEAD_BYTES = 64 << 10
"""Size of a request's line and headers; also of a trailer, and of anything else that is not its body."""
HEADERS = 100
WOKEN_BYTES = 64 << 10
"""Most bytes of a body that the system collects before it wakes the server, where less would not complete it:
a body that comes byte by byte wakes nobody."""
PIPELINED = 16
"""Requests of one connection that wait for the one before them."""


class _HeadError(Exception):
    """The head of a request exceeds a limit."""


class HttpProtocol(PacedProtocol, HttpToolsProtocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _answering: Any = None
    _too_large = ""
    _head_comes = _body_comes = _closed_by_us = False
    _since_parsed = _head_bytes = _headers = _rest_bytes = 0
    _body_bytes, _woken_bytes = 0, 1

    # --- the connection ----------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Count the connection, and begin to wait for the first head."""
        super().connection_made(transport)
        self.open_connections = cast("Any", self.config).loaded_app.open_connections
        self._wait(HEAD_SECONDS)
        if not self.open_connections.open(transport, self.client[0] if self.client else ""):
            self._refuse(503, "the server has too many connections; retry in 1 s", 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._read_again()
        self.drop_held()
        self.open_connections.closed(self.transport)
        super().connection_lost(exc)
        self._abandon()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and break the circle of parser and protocol: neither is used again."""
        super().handle_websocket_upgrade()
        cast("Any", self).parser = None

    def process(self, data: bytes) -> None:
        """Parse bytes. Those that belong to no body yet are bounded: the parser keeps them."""
        if self._closed_by_us:
            return
        self._since_parsed += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._since_parsed > HEAD_BYTES:
            self._refuse_head(f"the head of a request has at most {HEAD_BYTES} bytes")
        self._wake_for(min(max(self._body_bytes, 1), WOKEN_BYTES))

    def _wake_for(self, size_bytes: int) -> None:
        """Wake for no less than so many bytes; not with TLS, which may hold some of them already."""
        if size_bytes == self._woken_bytes or self.scheme != "http" or self.transport.is_closing():
            return
        self._woken_bytes = size_bytes
        with suppress(OSError, AttributeError):  # Windows has it for no socket; a test's transport has none
            wire = self.transport.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)

    def reading_is_paused(self) -> bool:
        """Return whether the app is to take a body, or a response, before more is read."""
        return self.flow.read_paused

    def pause_writing(self) -> None:
        """Give the client a time in which to read."""
        super().pause_writing()
        self._read_again()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._read_again()

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # --- a request ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a further head; the time of its request counts from now."""
        super().on_message_begin()
        # uvloop's clock stands since it last asked for bytes: these may have waited for others' since then.
        scope: dict[str, Any] = cast("dict[str, Any]", self.scope)
        scope[BEGAN] = min(self.loop.time(), time.monotonic(), self.held_since_s)
        self._head_bytes = self._headers = self._rest_bytes = self._body_bytes = 0
        self._head_comes = True
        self._wait(HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a field of a trailer."""
        super().on_header(name, value)
        self._headers += 1
        if name.lower() == b"content-length" and value.isdigit():
            self._body_bytes = int(value[:18])
        self._count(len(name) + len(value))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            self._too_large = f"the head of a request has at most {HEAD_BYTES} bytes"
        elif self._headers > HEADERS:
            self._too_large = f"a request has at most {HEADERS} headers"
        if self._too_large:
            raise _HeadError(self._too_large)

    def on_headers_complete(self) -> None:
        """Handle the end of a request's head. The app limits the time to read the body."""
        self._stop_waiting()
        self._since_parsed, self._head_comes = 0, False
        if len(self.pipeline) >= PIPELINED:
            self._too_large = f"at most {PIPELINED} requests of a connection wait"
            raise _HeadError(self._too_large)
        self._body_comes = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body. What comes after the answer is thrown away, up to a limit."""
        self._since_parsed = 0
        self._body_bytes -= len(body)
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._rest_bytes += len(body)
            if self._rest_bytes > DISCARDED_BYTES:
                self._close()

    def on_message_complete(self) -> None:
        """Take the end of the request: the client waits now, or the connection is idle."""
        self._since_parsed, self._body_bytes, self._body_comes = 0, 0, False
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._idle()
        else:
            self.open_connections.works(self.transport)

    def on_response_complete(self) -> None:
        """Begin to wait for the rest of the request, or for the next one."""
        super().on_response_complete()
        self._idle()

    def _idle(self) -> None:
        if self.transport.is_closing():
            self._close()
        elif not self._head_comes and self.cycle.response_complete:  # uvicorn's time ends with any byte
            self._wait(REST_SECONDS if self._body_comes else KEPT_SECONDS)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Note which request is answered: uvicorn knows the newest one, which may wait for others."""
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _abandon(self) -> None:
        """Let the app write no answer any more."""
        self.pipeline.clear()
        for cycle in (self._answering, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _end_after_answers(self) -> bool:
        """Answer the requests that are complete, and close after them; False: there are none."""
        newest = self.cycle
        if self._body_comes and self.pipeline and self.pipeline[0][0] is newest:
            self.pipeline.popleft()
            newest = self.pipeline[0][0] if self.pipeline else self._answering
        elif self._body_comes or newest is None:
            return False
        if newest.response_complete:
            return False
        self._stop_waiting()
        self._closed_by_us = True  # what else comes is not read
        newest.keep_alive = False
        return True

    # --- waiting for the client --------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self._close)
        self.open_connections.waits(self.transport)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Close the connection; what the client has not read soon is lost."""
        self._stop_waiting()
        self._closed_by_us = True
        self._abandon()
        if not self.transport.is_closing():
            self.transport.close()
        self._timer = self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    # --- refusals ----------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser did not take."""
        if self._too_large:
            self._refuse_head(self._too_large)
        else:
            self._refuse(400, msg)

    def _refuse_head(self, message: str) -> None:
        self._refuse(431, message)

    def _refuse(self, status: int, message: str, retry_after_s: int | None = None) -> None:
        """Answer with an error and close; if other answers are under way, close after them."""
        if self._end_after_answers():
            return
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            body = json.dumps({"error": message}).encode()
            retry = "" if retry_after_s is None else f"retry-after: {retry_after_s}\r\n"
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n{retry}\r\n"
            )
            self.transport.write(head.encode() + body)
        self._close()
