"""uvicorn's HTTP on httptools, with a time in which the head of a request must have come.

uvicorn closes connections that are idle after a request, and not those that never finish one: a client that
sends its head byte by byte would hold its connection for ever.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edgekit.serve.request_body import BEGAN

HEAD_SECONDS = 15.0


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a further head; the time of its request counts from now."""
        super().on_message_begin()
        # uvloop's clock stands since it last asked for bytes: these may have waited for others' since then.
        scope: dict[str, Any] = cast("dict[str, Any]", self.scope)
        scope[BEGAN] = min(self.loop.time(), time.monotonic())
        self._expect_head()

    def on_headers_complete(self) -> None:
        """It is there; the app limits the time of a body."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
