"""A web server on loopback that serves a folder as static hosts do, with ranges, and fails as it is told."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Fault = Callable[["Handler", bytes], bool]
"""Answers in the server's place, and says whether it did; it is given the file's content."""


@dataclass
class FileServer:
    """What a test sees of a server."""

    url: str
    fault: Fault | None = None
    ranges: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    """Serves ``server.folder``."""

    protocol_version = "HTTP/1.1"
    facts: FileServer
    folder: Path

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.facts.requests.append((self.path, asked))
        path = self.folder / self.path.lstrip("/")
        content = path.read_bytes() if path.is_file() else b""
        if self.facts.fault is not None and self.facts.fault(self, content):
            return
        if not path.is_file():
            self.answer(404, b"")
            return
        found = re.fullmatch(r"bytes=(\d+)-", asked)
        if found is None or not self.facts.ranges:
            self.answer(200, content)
            return
        start = int(found[1])
        if start >= len(content):
            self.answer(416, b"")
            return
        self.answer(
            206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        )

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """A complete answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[FileServer]:
    """Serve a folder on a free port of loopback."""
    facts = FileServer("")
    handler = type("FolderHandler", (Handler,), {"facts": facts, "folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    facts.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield facts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
