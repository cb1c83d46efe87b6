"""Files of a web server, read with limits: bytes, the time of each step, and the least speed.

No proxy is used, whatever the environment says, unless one is given. A redirect is followed only to the same
scheme. Everything that is read is checked by its caller against a signed size and hash, so http will do if
nobody minds who sees what a device fetches.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from edgekit._version import __version__
from edgekit.errors import UsageError
from edgekit.runtime import http_connection as http

if TYPE_CHECKING:
    import ssl

CHUNK_BYTES = 1 << 16
REDIRECTS_LIMIT = 3
AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""HTTP statuses after which the same request may succeed (RFC 9110, RFC 6585)."""


@dataclass(frozen=True)
class DownloadLimits:
    """Limits of a request and its retries, in seconds and bytes.

    Attributes:
        head_s: Timeout for the complete header of the response.
        silence_s: Maximum time between two chunks of a body.
        slow_after_s: Time after which the average speed of a body must be at least ``slow_bytes_per_s``.
        slow_bytes_per_s: Minimum speed; a slower server is an attack, or its network is unusable.
        attempts: Maximum number of consecutive requests without progress.
        connect_attempts: The same before the first connection. Most likely there is no network, or the URL
            is wrong, and somebody may be waiting for the message.
        wait_s: Delay before the first retry; doubled each time, with jitter, at most ``wait_limit_s``.
        wait_limit_s: Maximum delay before a retry, which also limits a server's ``Retry-After``.
    """

    connect_s: float = 10.0
    head_s: float = 30.0
    silence_s: float = 20.0
    slow_after_s: float = 30.0
    slow_bytes_per_s: float = 1024.0
    attempts: int = 8
    connect_attempts: int = 3
    wait_s: float = 0.5
    wait_limit_s: float = 30.0


class FetchError(Exception):
    """A file could not be fetched.

    Attributes:
        status: The HTTP status, or 0 without a response.
        retryable: Whether the same request may succeed.
        retry_after_s: Delay that the server requests, in seconds.
    """

    def __init__(
        self, reason: str, status: int = 0, retryable: bool = True, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.status, self.retryable, self.retry_after_s = status, retryable, retry_after_s


@dataclass
class Body:
    """An open response.

    Attributes:
        start: Offset of its first byte in the file.
        pieces: Its content, each piece at most ``CHUNK_BYTES``; raises FetchError if it ends too early.
    """

    start: int
    pieces: Iterator[bytes]


class HttpFiles:
    """The files below a URL.

    Args:
        url: ``https://host/folder`` or ``http://host:port/folder``.
        proxy: ``http://host:port`` of a proxy, if there is one.
        clock: Monotonic clock in seconds, for the minimum speed.

    Attributes:
        server_time: The last ``Date`` header, or "". Not signed: a hint for people only.
    """

    def __init__(
        self,
        url: str,
        proxy: str = "",
        limits: DownloadLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/") + "/"
        http.url_parts(self.url)
        self._proxy = proxy
        if proxy and http.url_parts(proxy).scheme != "http":
            raise UsageError(f"{proxy!r} is not a proxy; expected http://host:port")
        self.limits = limits or DownloadLimits()
        self.server_time = ""
        self._clock, self._sleep = clock, sleep
        self._context: ssl.SSLContext | None = None
        self._connected = False

    def read(self, path: str, limit_bytes: int) -> bytes:
        """Fetch a small file; retry if that may help."""

        failed = 0
        while True:
            try:
                content = bytearray()
                with self.open(path) as body:
                    for piece in body.pieces:
                        content += piece
                        if len(content) > limit_bytes:
                            raise FetchError(f"{path} has more than {limit_bytes} bytes", retryable=False)
                return bytes(content)
            except FetchError as problem:
                failed += 1
                self.wait_after(problem, failed)

    def wait_after(self, problem: FetchError, failed: int) -> None:
        """Wait before a request is repeated.

        Raises:
            FetchError: it is of no use, or has been tried often enough.
        """
        limits = self.limits
        max_attempts = limits.attempts if self._connected else min(limits.attempts, limits.connect_attempts)
        if not problem.retryable or failed >= max_attempts:
            raise problem
        doubled = limits.wait_s * 2.0 ** (failed - 1) * random.uniform(0.5, 1.5)
        self._sleep(min(max(doubled, problem.retry_after_s), limits.wait_limit_s))

    @contextmanager
    def open(self, path: str, offset: int = 0) -> Iterator[Body]:
        """Fetch a file from ``offset`` on, or from its start if the server sends no ranges.

        Args:
            path: Below the URL, with ``/`` between its parts; or a whole URL below it.

        Raises:
            FetchError: it does not come; ``retryable`` says whether it may at another time.
        """
        url = path if path.startswith(self.url) else self.url + quote(path)
        connection, response = self._follow(url, offset)
        with response, closing(connection):
            yield Body(_start(response, offset), self._pieces(connection, response))

    def _follow(self, url: str, offset: int) -> tuple[http.HttpConnection, HTTPResponse]:
        scheme = urlsplit(url).scheme
        for _ in range(REDIRECTS_LIMIT + 1):
            connection, response = self._request(url, offset)
            if response.status in (200, 206):
                return connection, response
            status, target = response.status, response.headers.get("Location", "")
            after_s = http.seconds_of(response.headers.get("Retry-After", "")) or 0.0
            response.close()
            if status not in (301, 302, 303, 307, 308) or not target:
                raise FetchError(f"{url}: HTTP status {status}", status, status in AGAIN, after_s)
            url = urljoin(url, target)
            if urlsplit(url).scheme != scheme:
                raise FetchError(f"{url}: a redirect from {scheme} to another scheme", retryable=False)
        raise FetchError(f"{url}: more than {REDIRECTS_LIMIT} redirects", retryable=False)

    def _request(self, url: str, offset: int) -> tuple[http.HttpConnection, HTTPResponse]:
        try:
            parts = http.url_parts(url)
        except UsageError as problem:
            raise FetchError(str(problem), retryable=False) from None
        if parts.scheme == "https" and self._context is None:
            self._context = http.default_context()
        connection = http.HttpConnection(
            f"{parts.scheme}://{parts.netloc}",
            {"User-Agent": f"edgekit/{__version__}", "Connection": "close"},
            self._context,
            connect_s=self.limits.connect_s,
            proxy=self._proxy,
        )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        wanted = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            response = connection.begin("GET", path, time.monotonic() + self.limits.head_s, headers=wanted)
        except http.ConnectionFailedError as problem:
            self._connected = self._connected or not problem.unsent
            raise FetchError(f"{url}: {problem}") from None
        self._connected = True
        self.server_time = (response.headers.get("Date") or self.server_time)[:64]
        return connection, response

    def _pieces(self, connection: http.HttpConnection, response: HTTPResponse) -> Iterator[bytes]:
        began, received, declared = self._clock(), 0, response.length
        while declared is None or received < declared:
            connection.end_s = time.monotonic() + self.limits.silence_s
            try:
                piece = response.read1(CHUNK_BYTES)
            except http.FAILURES as problem:
                raise FetchError(f"the response stopped: {http.reason_of(problem)}") from None
            if not piece:
                break
            received += len(piece)
            passed_s = self._clock() - began
            if passed_s > self.limits.slow_after_s and received < passed_s * self.limits.slow_bytes_per_s:
                minimum = self.limits.slow_bytes_per_s
                raise FetchError(
                    f"the server sends {received / passed_s:.0f} bytes a second; the minimum is {minimum:.0f}"
                )
            yield piece
        if declared is not None and received < declared:
            raise FetchError(f"the response ended {declared - received} bytes too early")


def _start(response: HTTPResponse, offset: int) -> int:
    if response.status == 200:
        return 0
    match = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
    if not offset or match is None or int(match[1]) != offset:
        raise FetchError("the server sent a different range than requested", retryable=False)
    return offset
