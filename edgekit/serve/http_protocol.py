"""uvicorn's HTTP on httptools, with limits on heads, on pipelined requests and on the time for a request.

``ConnectionWatch`` enforces the times. The limits on a body are those of its reader (``request_memory.py``).
"""

from __future__ import annotations

import json
import time
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.serve.connection_watch import CLOSING_SECONDS, ConnectionWatch, Watched
from edgekit.serve.request_memory import BEGAN, DISCARDED_BYTES

HEAD_SECONDS = 15.0
KEPT_SECONDS = 30.0
"""Time after which an idle connection is closed."""
BODY_SECONDS = 30.0
"""Time for a body, or for as much of it as BYTES_PER_SECOND give: it holds memory meanwhile."""
BYTES_PER_SECOND = 32 << 10
REST_SECONDS = 10.0
"""Time for the rest of a request that was answered before all of it came."""
HEAD_BYTES = 64 << 10
"""Maximum size of a request's line and headers, of a trailer, and of anything else that is not a body."""
HEADERS = 100
CHUNKS, CHUNK_BYTES = 1024, 64
"""Maximum number of chunks of a body, if they have fewer bytes than this on average."""
PIPELINED = 16
"""Maximum number of requests of one connection that wait for the one before them."""


class _LimitError(Exception):
    """A request exceeds a limit. Its arguments are a status and a message."""


class HttpProtocol(Watched, HttpToolsProtocol):
    """One connection."""

    _failure: tuple[int, str] | None = None
    _answering: Any = None
    _ignores = False
    _unparsed_bytes = _body_bytes = _chunks = _rest_bytes = 0

    def __init__(self, watch: ConnectionWatch, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.watch = watch

    # --- the connection ----------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.opened_s = time.monotonic()
        self.due_s = self.opened_s + HEAD_SECONDS
        self.watch.opened(self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the app write no more: uvicorn informs only the newest request, which may wait for others."""
        super().connection_lost(exc)
        self._abandon()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, and break the circle of parser and protocol: neither is used again."""
        super().handle_websocket_upgrade()
        cast("Any", self).parser = None

    def data_received(self, data: bytes) -> None:
        """Parse bytes. The parser keeps those of an incomplete head."""
        if self._ignores or self.transport.is_closing():
            return
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > HEAD_BYTES:
            self._refuse(431, f"the head of a request has at most {HEAD_BYTES} bytes")

    def overdue(self) -> None:
        """Refuse a body that came too slowly, or close the connection."""
        if self.flow.read_paused:  # the client waits for the server
            return
        cycle = self.cycle
        if self._ignores or self.transport.is_closing():
            self.transport.abort()
        elif cycle is not None and not cycle.response_complete:
            self._refuse(
                408,
                f"the body did not arrive within {BODY_SECONDS:g} s, and came more slowly than "
                f"{BYTES_PER_SECOND >> 10} KB a second",
            )
        else:
            self._close()

    # --- a request ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # uvloop's clock stands since it last asked for bytes: these may have waited for others' since then.
        began_s = min(self.loop.time(), time.monotonic())
        cast("dict[str, Any]", self.scope)[BEGAN] = began_s
        self._body_bytes = self._chunks = self._rest_bytes = 0
        self.due_s = began_s + HEAD_SECONDS

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a field of a trailer."""
        super().on_header(name, value)
        if len(self.headers) > HEADERS:
            self._fail(431, f"a request has at most {HEADERS} headers")

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_BYTES:
            self._fail(431, f"the head of a request has at most {HEAD_BYTES} bytes")
        if len(self.pipeline) >= PIPELINED:
            self._fail(431, f"at most {PIPELINED} requests of a connection wait")
        self._unparsed_bytes = 0
        self.due_s = time.monotonic() + BODY_SECONDS
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > CHUNKS + self._body_bytes // CHUNK_BYTES:
            self._fail(400, f"the body has more than {CHUNKS} chunks, and they are too small")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body. Discard it after the response, up to a limit."""
        self._unparsed_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)
        if self.cycle is None or not self.cycle.response_complete:
            self.due_s += len(body) / BYTES_PER_SECOND
        else:
            self._rest_bytes += len(body)
            if self._rest_bytes > DISCARDED_BYTES:
                self._close()

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        super().on_message_complete()
        is_answered = self.cycle is not None and self.cycle.response_complete
        self.due_s = time.monotonic() + KEPT_SECONDS if is_answered else float("inf")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:  # the newest one: others may wait
            self.due_s = time.monotonic() + (REST_SECONDS if self.cycle.more_body else KEPT_SECONDS)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _abandon(self) -> None:
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    # --- refusals ----------------------------------------------------------------------------------------

    def _fail(self, status: int, message: str) -> None:
        self._failure = status, message
        raise _LimitError

    def send_400_response(self, msg: str) -> None:
        """Refuse the request that the parser rejected."""
        self._refuse(*(self._failure or (400, msg)))

    def _refuse(self, status: int, message: str) -> None:
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                cycle.keep_alive, self._ignores = False, True
                return
            if cycle.response_started or self.pipeline:
                self._close()
                return
        if not self.transport.is_closing():
            body = json.dumps({"error": message}).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._close()

    def _close(self) -> None:
        self._ignores = True
        self._abandon()
        self.due_s = time.monotonic() + CLOSING_SECONDS
        self.transport.close()


def http_protocol(watch: ConnectionWatch) -> Any:
    """Return the class of connections for ``uvicorn.Config``."""
    return partial(HttpProtocol, watch)
