"""A backend for trying things out: takes alerts over HTTP on this machine, writes each into a folder once.

A product gives the address of its own: ``--backend https://...``.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edgekit.system.atomic_files import write_atomically

LOOPBACK = "127.0.0.1"
MOST_BYTES = 1 << 20
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
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self))
        self._server.daemon_threads = True
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


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5.0

        def do_POST(self) -> None:
            key = self.headers.get("Idempotency-Key") or ""
            length = self.headers.get("Content-Length") or ""
            if not _sent_with(self.headers, receiver.headers):
                status = 401
            elif not KEY.fullmatch(key) or not length.isdecimal() or int(length) > MOST_BYTES:
                status = 400
            else:
                status = receiver.take(key, self.rfile.read(int(length)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing: standard error belongs to the app."""

    return Handler


def _sent_with(headers: Any, expected: Mapping[str, str]) -> bool:
    return all(secrets.compare_digest(headers.get(n) or "", value) for n, value in expected.items())
