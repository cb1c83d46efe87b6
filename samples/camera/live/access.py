"""Who may do what: the rules that every request passes before it reaches the app.

On loopback, the default, there is no token: only this machine reaches the port. A web page elsewhere may
still send a browser here, so Host must name this machine (against DNS rebinding) and Origin, where a browser
sends it, must be this page. With ``--listen`` the token is asked for besides.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import Any

from aiohttp import WSMsgType, web

BODY_BYTES = 16 << 10
BODY_S = 5.0
"""A request's body has to arrive within this time."""
MESSAGE_BYTES = 4 << 10
MOST_SOCKETS = 32
SECURITY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OPEN = ("/", "/page/")
"""Paths without a token: the page itself, which holds nothing secret."""


class RefusedError(Exception):
    """The request is refused.

    Attributes:
        status: Of HTTP.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Access:
    """The rules of one server.

    Args:
        port: The one it listens on.
        token: To be shown by every request; None: loopback only, without one.
    """

    def __init__(self, port: int, token: str | None) -> None:
        self.token = token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self._sockets = 0

    def check(self, request: web.Request) -> None:
        """Raises: RefusedError: Host, Origin or the token is wrong."""
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if self.token is None and host not in self._hosts:
            raise RefusedError(403, f"Host is {host[:80]!r}; open {min(self._hosts)}")
        if origin is not None and origin != f"http://{host}":
            raise RefusedError(403, "this page is not allowed to ask; open the camera's own page")
        is_open = request.path == OPEN[0] or request.path.startswith(OPEN[1])
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        if self.token is not None and not is_open and not is_socket:  # a socket shows it in its first message
            kind, _, shown = request.headers.get("Authorization", "").partition(" ")
            if kind != "Bearer" or not self._is_token(shown):
                raise RefusedError(401, "a token is needed: open the address that the camera printed")

    def _is_token(self, shown: Any) -> bool:
        own = (self.token or "").encode()
        return isinstance(shown, str) and hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), own)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Check, run, and turn every refusal and failure into JSON without a traceback."""
        answer: web.StreamResponse
        try:
            self.check(request)
            answer = await handler(request)
        except RefusedError as problem:
            answer = refusal(problem.status, str(problem))
        except web.HTTPException as problem:
            answer = refusal(problem.status, f"{request.method} {request.path[:80]}: {problem.reason}")
        except ConnectionError:
            raise
        except Exception as problem:
            answer = refusal(500, f"the camera could not do this ({type(problem).__name__}); it goes on")
        if not answer.prepared:
            answer.headers.update(SECURITY)
        return answer

    async def body(self, request: web.Request) -> Any:
        """The JSON of a request.

        Raises:
            RefusedError: it is too large, too slow, or no JSON.
        """
        if request.content_type != "application/json":
            raise RefusedError(415, "the body must be application/json")
        try:
            content = await asyncio.wait_for(request.read(), BODY_S)
            return json.loads(content)
        except (asyncio.TimeoutError, TimeoutError):
            raise RefusedError(408, f"the body did not arrive within {BODY_S:g} s") from None
        except web.HTTPRequestEntityTooLarge:
            raise RefusedError(413, f"the body is larger than {BODY_BYTES} bytes") from None
        except (ValueError, RecursionError):
            raise RefusedError(400, "the body is no JSON") from None

    async def open_socket(self, request: web.Request) -> web.WebSocketResponse:
        """An accepted WebSocket; the token, where there is one, has been shown.

        Raises:
            RefusedError: there are too many, or this is no WebSocket.
        """
        if self._sockets >= MOST_SOCKETS:
            raise RefusedError(503, f"{MOST_SOCKETS} connections are open already; close one")
        socket = web.WebSocketResponse(
            max_msg_size=MESSAGE_BYTES, heartbeat=20.0, timeout=1.0, compress=False
        )
        if not socket.can_prepare(request):
            raise RefusedError(426, "this address is a WebSocket")
        self._sockets += 1  # before anything is waited for: many may come at once
        try:
            await socket.prepare(request)
            if self.token is not None and not await self._shows_token(socket):
                await socket.close(code=4401, message=b"token")
        except BaseException:
            self._sockets -= 1
            raise
        return socket

    def closed_socket(self) -> None:
        """One of ``open_socket`` has ended."""
        self._sockets -= 1

    async def _shows_token(self, socket: web.WebSocketResponse) -> bool:
        try:
            first = await asyncio.wait_for(socket.receive(), BODY_S)
            shown = json.loads(first.data) if first.type == WSMsgType.TEXT else None
        except (asyncio.TimeoutError, TimeoutError, ValueError, RecursionError):
            return False
        return isinstance(shown, dict) and self._is_token(shown.get("token"))


def refusal(status: int, text: str) -> web.Response:
    """An error as JSON."""
    return web.json_response({"error": text}, status=status)
