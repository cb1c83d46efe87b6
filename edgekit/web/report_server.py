"""HTTPS server of one folder's files that takes one signed report, and then ends.

It is the standard library's, a thread for a connection, with limits: connections of all and of one address,
the time of a handshake, a request and a response, and the bytes of a head and a body. Every path begins with
a random token. A report is signed with the one-time key that stands behind the # of the page's address, which
browsers do not send.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import shutil
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any, NoReturn

from edgekit.errors import UsageError
from edgekit.system.listen_address import Address

CONNECTIONS = 32
ADDRESS_CONNECTIONS = 16
HEAD_BYTES = 16 << 10
REQUEST_SECONDS = 15.0
"""Time of a handshake, and from then on of a whole request."""
BODY_BYTES = 128 << 10
RESPONSE_SECONDS = 30.0
RESPONSE_BYTES_PER_SECOND = 64 << 10
"""A response may take RESPONSE_SECONDS, and one second more for each of these."""
LINGER_SECONDS = 1.0
"""Time in which a client that was answered early may end its request, unread, so that it gets the answer."""
REPORT, SIGNATURE = "report", "EdgeKit-Signature"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
HEADERS = {
    "Cache-Control": "no-store",
    # Isolated pages have a clock of 5 us instead of 100 us.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class ReportError(ValueError):
    """Fault in a report: it is refused, and the server waits for another one."""


class ReportServer(ThreadingHTTPServer):
    """Server on one address.

    Args:
        address: Address to listen on; port 0 takes a free one.
        files: Name in the URL -> path of the file.
        accept: Checks a report's bytes; raises ReportError to refuse it. Called by one thread at a time, and
            not again after a report was accepted.

    Raises:
        UsageError: the address cannot be used.
    """

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(
        self,
        address: Address,
        context: ssl.SSLContext,
        files: Mapping[str, Path],
        accept: Callable[[bytes], None],
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.token, self.key = secrets.token_urlsafe(16), secrets.token_urlsafe(32)
        self.files, self.accept = files, accept
        self.accepting, self.accepted = threading.Lock(), False
        self._done = threading.Event()
        self._context = context
        self._addresses: Counter[str] = Counter()
        self._deadlines: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        try:
            super().__init__((address.host, address.port), ReportHandler)
        except OSError as problem:
            raise UsageError(
                f"can't listen on {address.shown}:{address.port}: {problem.strerror or problem}; "
                "choose another --listen"
            ) from None
        self.url = f"https://{address.shown}:{self.server_port}/{self.token}/measure.html#{self.key}"

    def server_bind(self) -> None:
        """Bind without HTTPServer's reverse look-up of the host's name, which may ask a DNS server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def wait(self, seconds: float) -> bool:
        """Serve until a report was accepted, or for some seconds; return whether it was."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        thread.start()
        try:
            return self._done.wait(seconds)
        finally:
            self.shutdown()
            self.server_close()
            with self._guard:
                for connection in self._deadlines:
                    _shut(connection)

    # --- connections: how many, and how long -------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a connection's thread, or close the connection where too many are open."""
        host = client_address[0]
        with self._guard:
            full = self._addresses.total() >= CONNECTIONS or self._addresses[host] >= ADDRESS_CONNECTIONS
            if not full:
                self._addresses[host] += 1
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._addresses[client_address[0]] -= 1

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands and handle the one request of a connection."""
        request.settimeout(REQUEST_SECONDS)  # of a whole handshake, but of each piece that is read later
        with self._context.wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as connection:
            connection.do_handshake()
            self.allow(connection, REQUEST_SECONDS)
            try:
                super().finish_request(connection, client_address)
                _linger(connection)
            finally:
                with self._guard:
                    del self._deadlines[connection]

    def allow(self, connection: Any, seconds: float) -> None:
        """Set the time at which a connection is closed, however busy it is."""
        with self._guard:
            self._deadlines[connection] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """Close late connections; the server's loop calls it several times a second."""
        now = time.monotonic()
        with self._guard:
            for connection, deadline in self._deadlines.items():
                if deadline < now:
                    _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a connection that was closed or sent something else than HTTPS."""

    # --- the report --------------------------------------------------------------------------------------

    def answer(self, body: bytes, signature: str) -> tuple[int, str]:
        """Check a report's signature, then the report: HTTP status and a reason."""
        expected = hmac.new(self.key.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            return 403, "the report is not signed with the key of this page's address"
        with self.accepting:
            if self.accepted:
                return 409, "a report was accepted already"
            try:
                self.accept(body)
            except ReportError as problem:
                return 422, str(problem)
            self.accepted = True
        return 200, ""

    def finish(self) -> None:
        """End ``wait``."""
        self._done.set()


class ReportHandler(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: ReportServer

    def setup(self) -> None:
        """Limit the bytes of the head."""
        super().setup()
        self.body, self.rfile = self.rfile, Head(self.rfile)  # type: ignore[assignment]

    def do_GET(self) -> None:
        """Send a file."""
        path = self.server.files.get(self._name())
        if path is None:
            self._send(404, b"", "text/plain")
            return
        size = path.stat().st_size
        self.server.allow(self.connection, RESPONSE_SECONDS + size / RESPONSE_BYTES_PER_SECOND)
        self._head(200, TYPES.get(path.suffix, "application/octet-stream"), size)
        with path.open("rb") as file:
            shutil.copyfileobj(file, self.wfile)

    def do_POST(self) -> None:
        """Take a report."""
        length = self.headers.get("Content-Length", "")
        if self._name() != REPORT:
            self._send(404, b"", "text/plain")
        elif not length.isdecimal() or len(length) > 12 or "Transfer-Encoding" in self.headers:
            self._refuse(411, "the report needs its length")
        elif int(length) > BODY_BYTES:
            self._refuse(413, f"the report has {length} bytes; the limit is {BODY_BYTES}")
        else:
            body = self.body.read(int(length))
            if len(body) < int(length):
                return
            status, reason = self.server.answer(body, self.headers.get(SIGNATURE, ""))
            self._refuse(status, reason)
            if status == 200:
                self.server.finish()

    def _name(self) -> str:
        """Return the file's name in the URL; "" where the token is another one."""
        token, _, name = self.path[1:].partition("?")[0].partition("/")
        same = secrets.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        return name if same else ""

    def _refuse(self, status: int, reason: str) -> None:
        self._send(status, json.dumps({"problem": reason}).encode(), "application/json")

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self._head(status, kind, len(content))
        self.wfile.write(content)

    def _head(self, status: int, kind: str, size: int) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def version_string(self) -> str:
        """Return the server's name, without Python's version."""
        return "EdgeKit"

    def log_message(self, *_: Any) -> None:
        """Print nothing: a URL holds the token."""


class Head:
    """Reader of a request's line and headers, which ends the connection after ``HEAD_BYTES``."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._left = HEAD_BYTES

    def readline(self, size: int = -1) -> bytes:
        """Read a line."""
        line: bytes = self._source.readline(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            self._end()
        return line

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _end(self) -> NoReturn:
        raise ConnectionAbortedError(f"a head of more than {HEAD_BYTES} bytes")


def _linger(connection: socket.socket) -> None:
    """Discard the rest of a request: to close with unread bytes would reset the connection and the answer."""
    deadline, left_bytes = time.monotonic() + LINGER_SECONDS, BODY_BYTES
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_WR)
        connection.settimeout(LINGER_SECONDS)
        while left_bytes > 0 and time.monotonic() < deadline:
            piece = socket.socket.recv(connection, min(left_bytes, 16 << 10))  # encrypted
            if not piece:
                break
            left_bytes -= len(piece)


def _shut(connection: socket.socket) -> None:
    """End a connection that another thread reads or writes; that of SSLSocket would forget its TLS."""
    with contextlib.suppress(OSError):  # the other end was faster
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
