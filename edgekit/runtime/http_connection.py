"""One persistent HTTP/1.1 connection with a deadline for each whole exchange.

The standard library's timeout applies to each read, so a server that sends a byte a second never exceeds it.
Here connecting, sending and every read share the time left until the deadline.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from edgekit.errors import UsageError, printable

if TYPE_CHECKING:
    import ssl

CONNECT_S = 0.25
FAILURES = (OSError, HTTPException, ValueError)
"""Errors of the standard library if there is no valid response."""


class ConnectionFailedError(Exception):
    """No valid response.

    Attributes:
        unsent: The server cannot have started on the request: there was no connection.
    """

    def __init__(self, message: str, unsent: bool = False) -> None:
        super().__init__(printable(message))  # it may quote what the server sent
        self.unsent = unsent


class Reply(NamedTuple):
    """The response of a server; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def retry_after_s(self) -> float | None:
        """``Retry-After`` in seconds, if it is given in seconds."""
        return seconds_of(self.headers.get("retry-after", ""))


class HttpConnection(HTTPConnection):
    """A connection to one server, whose every call ends at a deadline. One exchange at a time.

    Args:
        context: For https. None means the system's certificates.
        connect_s: Timeout for connecting, in seconds.

    Raises:
        UsageError: ``url`` or a header is invalid.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        *,
        connect_s: float = CONNECT_S,
        proxy: str = "",
    ) -> None:
        parts = url_parts(url, "pass an authorization as a header")
        if parts.query or parts.fragment:
            raise UsageError(f"{url!r} has more than a server's URL; expected http://host:port/prefix")
        for name, value in (headers or {}).items():
            if not (name + value).isprintable() or not (name + value).isascii():
                raise UsageError(f"header {name!r} is not one line of ASCII")
        self._path = parts.path.rstrip("/")
        self._headers, self._connect_s = dict(headers or {}), connect_s
        self._context = (context or default_context()) if parts.scheme == "https" else None
        self.default_port = 443 if self._context else 80
        self.end_s = 0.0
        through = url_parts(proxy) if proxy else parts
        super().__init__(str(through.hostname), through.port or (80 if proxy else self.default_port))
        if proxy and self._context:
            self.set_tunnel(str(parts.hostname), parts.port or 443)
        elif proxy:
            self._path = f"http://{parts.netloc}{self._path}"

    def connect(self) -> None:
        address = self.host, self.port
        plain = socket.create_connection(address, timeout=min(_left_s(self.end_s), self._connect_s))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(_left_s(self.end_s))
            through = getattr(self, "_tunnel_host", None)  # of set_tunnel: self.host is the proxy's
            if through:
                self.sock = _TimedSocket(plain, self)
                self._tunnel()  # type: ignore[attr-defined]
            if self._context is not None:
                plain = self._context.wrap_socket(plain, server_hostname=through or self.host)
        except BaseException:
            plain.close()
            raise
        self.sock = _TimedSocket(plain, self)

    def begin(
        self,
        method: str,
        path: str,
        end_s: float,
        body: Sequence[bytes | memoryview] = (),
        headers: Mapping[str, str] | None = None,
    ) -> HTTPResponse:
        """Send a request and return the response, whose body is not read yet. The caller closes it.

        Args:
            end_s: The deadline, on ``time.monotonic()``. The caller may change ``self.end_s`` later.

        Raises:
            ConnectionFailedError: there was no valid response in time.
        """
        self.end_s, unsent = end_s, self.sock is None
        try:
            if unsent:
                self.connect()
            unsent = False
            sent = {**self._headers, **(headers or {})}
            if body:
                sent["Content-Length"] = str(sum(memoryview(piece).nbytes for piece in body))
            self.request(method, self._path + path, body or None, sent)
            return self.getresponse()
        except BaseException as problem:
            self.close()
            if isinstance(problem, FAILURES):
                raise ConnectionFailedError(reason_of(problem), unsent) from None
            raise

    def exchange(
        self,
        method: str,
        path: str,
        end_s: float,
        limit_bytes: int,
        body: Sequence[bytes | memoryview] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request and read the response, at most ``limit_bytes`` of its body. See ``begin``.

        Raises:
            ConnectionFailedError: there was no valid response in time.
        """
        with self.begin(method, path, end_s, body, headers) as response:
            try:
                declared = response.length or 0  # a body declared too large is not read
                content = response.read(limit_bytes + 1) if declared <= limit_bytes else b""
                if max(len(content), declared) > limit_bytes:
                    raise ConnectionFailedError(f"the response exceeds {limit_bytes} bytes")
                if response.length:
                    raise ConnectionFailedError(f"the response is {response.length} bytes short")
            except BaseException as problem:
                self.close()
                if isinstance(problem, FAILURES):
                    raise ConnectionFailedError(reason_of(problem)) from None
                raise
        return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, content)

    @property
    def is_open(self) -> bool:
        """Return whether a connection is open; its server may have closed it by now."""
        return self.sock is not None


class _TimedSocket:
    def __init__(self, plain: socket.socket, owner: HttpConnection) -> None:
        self._plain, self._owner = plain, owner
        self.close = plain.close  # the system's socket stays open until an open response is closed too

    def sendall(self, data: Any) -> None:
        self._plain.settimeout(_left_s(self._owner.end_s))
        self._plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._plain, self._owner))


class _TimedReader(io.RawIOBase):
    def __init__(self, plain: socket.socket, owner: HttpConnection) -> None:
        self._plain, self._owner = plain, owner
        self._raw = plain.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._plain.settimeout(_left_s(self._owner.end_s))
        return self._plain.recv_into(buffer)

    def close(self) -> None:
        super().close()
        self._raw.close()


def _left_s(end_s: float) -> float:
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def url_parts(url: str, instead: str = "leave it out") -> SplitResult:
    """Return the parts of a server's URL.

    Args:
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


def default_context() -> ssl.SSLContext:
    """Return a context with the system's certificates."""
    import ssl  # here: takes 10 ms and a lot of memory

    return ssl.create_default_context()


def seconds_of(retry_after: str) -> float | None:
    """Return a ``Retry-After`` in seconds, or None if it is not a number."""
    short = retry_after.isascii() and retry_after.isdecimal() and len(retry_after) < 9
    return float(retry_after) if short else None


def reason_of(problem: Exception) -> str:
    """Return the reason of a failed exchange, for the user."""
    if isinstance(problem, TimeoutError):
        return "no response in time"
    return f"{type(problem).__name__}: {str(problem).strip()}"[:200]
