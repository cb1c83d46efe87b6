"""One persistent HTTP/1.1 connection with a deadline for each whole exchange.

The standard library's timeout applies to each read, so a server that sends a byte a second never exceeds it.
Here connecting, sending and every read share the time left until the deadline.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from edgekit.errors import UsageError, printable

if TYPE_CHECKING:
    import ssl

CONNECT_S = 0.25


class ConnectionFailedError(Exception):
    """No valid response.

    Attributes:
        unsent: The server cannot have started on the request: there was no connection.
    """

    def __init__(self, message: str, unsent: bool = False) -> None:
        super().__init__(printable(message))  # it may quote what the server sent
        self.unsent = unsent


@dataclass(frozen=True)
class Reply:
    """The response of a server; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """``Retry-After`` in seconds, if it is given in seconds."""
        return seconds_of(self.headers.get("retry-after", ""))


class HttpConnection:
    """A connection to one server. One exchange at a time.

    Args:
        url: ``http://host:port/prefix`` or ``https://...``.
        headers: Sent with every request, e.g. an authorization.
        context: For https; None: the system's certificates.

    Raises:
        UsageError: ``url`` or a header is invalid.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        parts = url_parts(url, "pass an authorization as a header")
        if parts.query or parts.fragment:
            raise UsageError(f"{url!r} has more than a server's URL; expected http://host:port/prefix")
        for name, value in (headers or {}).items():
            if not (name + value).isprintable() or not (name + value).isascii():
                raise UsageError(f"header {name!r} is not one line of ASCII")
        self.path = parts.path.rstrip("/")
        self._headers = dict(headers or {})
        self._context = (context or default_context()) if parts.scheme == "https" else None
        self._host, self._port = address_of(parts)
        self._open: TimedConnection | None = None

    def exchange(
        self,
        method: str,
        path: str,
        end_s: float,
        limit_bytes: int,
        body: Iterable[bytes | memoryview] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and wait for the response.

        Args:
            method: ``GET`` or ``POST``.
            path: Appended to the URL's path.
            end_s: The deadline, on ``time.monotonic()``.
            limit_bytes: Size limit of the response's body.
            body: The request's body, in pieces.
            headers: In addition to those of every request.

        Raises:
            ConnectionFailedError: there was no valid response in time.
        """
        pieces = list(body)
        is_new = self._open is None
        connection = self._open or TimedConnection(self._host, self._port, self._context)
        self._open = None  # put back after a complete exchange
        connection.end_s = end_s
        unsent = is_new
        try:
            if is_new:
                connection.connect()
            unsent = False
            length = sum(memoryview(piece).nbytes for piece in pieces)
            sent = {**self._headers, **(headers or {}), "Content-Length": str(length)}
            connection.request(method, self.path + path, None, sent if pieces else self._headers)
            for piece in pieces:
                connection.send(piece)
            response = connection.getresponse()
            declared = response.length or 0  # a body declared too large is not read
            content = response.read(limit_bytes + 1) if declared <= limit_bytes else b""
            if max(len(content), declared) > limit_bytes:
                raise ConnectionFailedError(f"the response exceeds {limit_bytes} bytes")
            if response.length:
                raise ConnectionFailedError(f"the response is {response.length} bytes short")
        except (OSError, HTTPException, ValueError, ConnectionFailedError) as problem:
            connection.drop()
            text = str(problem) if isinstance(problem, ConnectionFailedError) else reason_of(problem)
            raise ConnectionFailedError(text, unsent) from None
        except BaseException:
            connection.drop()
            raise
        if response.will_close:
            connection.drop()
        else:
            self._open = connection
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, content)

    @property
    def is_open(self) -> bool:
        """Return whether a connection is open; its server may have closed it by now."""
        return self._open is not None

    def close(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.drop()


class TimedConnection(HTTPConnection):
    """A connection of the standard library whose every call ends at ``end_s``, on ``time.monotonic()``.

    Args:
        host: The server's name or address.
        port: Its port.
        context: For https; None: http.
        connect_s: Limit of the time to connect, in seconds.
    """

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, connect_s: float = CONNECT_S
    ) -> None:
        super().__init__(host, port)
        self.end_s = 0.0
        self._connect_s = connect_s
        self._tls = context
        self._plain: socket.socket | None = None

    def connect(self) -> None:
        left_s = min(_left_s(self.end_s), self._connect_s)
        plain = socket.create_connection((self.host, self.port), timeout=left_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(_left_s(self.end_s))
            through = getattr(self, "_tunnel_host", None)  # of set_tunnel: self.host is the proxy's
            if through:
                self.sock = _Timed(plain, self)
                self._tunnel()  # type: ignore[attr-defined]
            if self._tls is not None:
                plain = self._tls.wrap_socket(plain, server_hostname=through or self.host)
        except BaseException:
            plain.close()
            raise
        self.sock, self._plain = _Timed(plain, self), plain

    @property
    def connected(self) -> bool:
        """Return whether it was ever connected."""
        return self._plain is not None

    def drop(self) -> None:
        """Close the socket itself. ``close`` must not: HTTPConnection calls it while a response is being
        read."""
        self.close()
        if self._plain is not None:
            self._plain.close()


class _Timed:
    """The part of a socket that HTTPConnection uses, with each call bounded by the remaining time."""

    def __init__(self, plain: socket.socket, owner: TimedConnection) -> None:
        self._plain, self._owner = plain, owner

    def sendall(self, data: Any) -> None:
        self._plain.settimeout(_left_s(self._owner.end_s))
        self._plain.sendall(data)

    def receive(self, buffer: Any) -> int:
        self._plain.settimeout(_left_s(self._owner.end_s))
        return self._plain.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_ResponseReader(self))

    def close(self) -> None:
        """See ``TimedConnection.drop``."""


class _ResponseReader(io.RawIOBase):
    def __init__(self, timed: _Timed) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.receive(buffer)


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def url_parts(url: str, instead: str = "leave it out") -> SplitResult:
    """Return the parts of a server's URL.

    Args:
        url: With the scheme http or https.
        instead: Advice for a URL with a user name.

    Raises:
        UsageError: it is not such a URL, or has a user name.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(f"{url!r} is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise UsageError(f"{url!r} is not a server URL; expected http://host:port or https://host")
    if parts.username is not None:
        raise UsageError(f"a URL with a user name is not used; {instead}")
    return parts


def address_of(parts: SplitResult) -> tuple[str, int]:
    """Return the host and the port of a URL's parts."""
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)


def default_context() -> ssl.SSLContext:
    """Return a context with the system's certificates."""
    import ssl  # here: takes 10 ms and a lot of memory

    return ssl.create_default_context()


def seconds_of(retry_after: str) -> float | None:
    """Return a ``Retry-After`` that is given in seconds; else None."""
    short = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 9
    return float(retry_after) if short else None


def reason_of(problem: Exception) -> str:
    """Return the reason of a failed exchange, for the user."""
    if isinstance(problem, TimeoutError):
        return "no response in time"
    return f"{type(problem).__name__}: {str(problem).strip()}"[:200]
