"""A backend for trying things out: takes alerts over HTTP on this machine, writes each into a folder once.

A product gives the address of its own: ``--backend https://...``.
"""

from __future__ import annotations

import re
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edgekit.system.atomic_files import write_atomically

LOOPBACK = "127.0.0.1"
MOST_BYTES = 1 << 20
CONNECTIONS = 16
"""Maximum number of connections, each of which has a thread; the oldest makes room for a new one."""
REQUEST_S = 10.0
"""Time limit for a request, with the wait for it, in seconds."""
KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Receiver:
    """Takes rows on a free port of loopback.

    Args:
        folder: Each row becomes KEY.json in it.

    Attributes:
        url: Where to send rows.
        headers: What to send with each: a secret of this run, so that nobody else can.
        repeated: Rows that came again and were not written again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.headers = {"Authorization": f"Bearer {secrets.token_urlsafe(16)}"}
        self.repeated = 0
        self._folder = folder
        self._server = _Server((LOOPBACK, 0), _handler(self))
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}/alerts"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="camera-receiver", daemon=True
        )
        self._thread.start()

    def take(self, key: str, body: bytes) -> int:
        """Write a row; returns HTTP's status."""
        path = self._folder / f"{key}.json"
        if path.exists():
            self.repeated += 1
            return 409
        write_atomically(path, [body])
        return 201

    def close(self) -> None:
        """Stop taking rows."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[Any, None] = {}  # connections, the oldest first
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._open) >= CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                end(oldest)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


def end(connection: socket.socket) -> None:
    """End a connection; the thread that waits for its bytes goes on."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5.0

        def handle_one_request(self) -> None:
            timer = threading.Timer(REQUEST_S, end, (self.connection,))
            timer.daemon = True
            timer.start()
            try:
                super().handle_one_request()
            finally:
                timer.cancel()

        def do_POST(self) -> None:
            key = self.headers.get("Idempotency-Key") or ""
            length = self.headers.get("Content-Length") or ""
            if not _sent_with(self.headers, receiver.headers):
                status = 401
            elif not KEY.fullmatch(key) or not length.isdecimal() or int(length) > MOST_BYTES:
                status = 400
            elif len(body := self.rfile.read(int(length))) < int(length):
                status = 400  # the connection ended first
            else:
                status = receiver.take(key, body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error belongs to the app."""

    return Handler


def _sent_with(headers: Any, expected: Mapping[str, str]) -> bool:
    return all(secrets.compare_digest(headers.get(n) or "", value) for n, value in expected.items())
