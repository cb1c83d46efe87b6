"""The server of ``edgekit devices --browser``: one signed report, and what it refuses within which bounds."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.system.listen_address import Address
from edgekit.web import report_server
from edgekit.web.report_server import BODY_BYTES, ReportError, ReportServer
from tests.fixtures.threads import in_threads

pytest.importorskip("cryptography", reason="cryptography is not installed (the extra browser)")
from edgekit.web.browser_device import own_certificate

HERE = "127.0.0.1"


class Running:
    """A server in a thread, and what it accepted."""

    def __init__(self, folder: Path) -> None:
        (folder / "page.html").write_text("<p>page</p>")
        (folder / "large.bin").write_bytes(bytes(8 << 20))
        files = {name: folder / name for name in ("page.html", "large.bin")}
        self.bodies: list[bytes] = []
        context, self.fingerprint = own_certificate(HERE)
        self.server = ReportServer(Address(HERE, 0), context, files, self._accept)
        self.ended: bool | None = None
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        self.ended = self.server.wait(60)

    def _accept(self, body: bytes) -> None:
        time.sleep(0.3)  # others arrive meanwhile
        if body == b"lies":
            raise ReportError("figures that lie")
        self.bodies.append(body)

    def path(self, name: str) -> str:
        return f"/{self.server.token}/{name}"

    def sign(self, body: bytes) -> dict[str, str]:
        return {"EdgeKit-Signature": hmac.new(self.server.key.encode(), body, hashlib.sha256).hexdigest()}

    def connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        plain = socket.create_connection((HERE, self.server.server_port), timeout=20)
        return context.wrap_socket(plain)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, Any]:
        with self.connect() as connection:
            client = http.client.HTTPSConnection(HERE)
            client.sock = connection
            client.request(method, path, body, headers or {})
            response = client.getresponse()
            return response.status, response.read(), response.headers

    def report(self, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str]:
        headers = self.sign(body) if headers is None else headers
        status, content, _ = self.request("POST", self.path("report"), body, headers)
        return status, json.loads(content)["problem"]

    def accepts(self) -> bool:
        """Whether a right report is accepted, and the server ends by it."""
        assert self.report(b"{}") == (200, "")
        self.thread.join(10)
        return self.ended is True and self.bodies == [b"{}"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.server.finish()
    found.thread.join(10)
    assert not found.thread.is_alive()


def test_files_and_one_report(running: Running) -> None:
    status, content, headers = running.request("GET", running.path("page.html"))
    assert (status, content) == (200, b"<p>page</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert headers["Server"] == "EdgeKit"
    assert len(running.request("GET", running.path("large.bin"))[1]) == 8 << 20
    assert running.server.url.endswith(f"#{running.server.key}")
    assert running.accepts()
    with pytest.raises(ConnectionRefusedError):
        running.connect()


def test_the_certificate_is_for_the_address_and_this_day(running: Running) -> None:
    from cryptography import x509

    with running.connect() as connection:
        content = connection.getpeercert(binary_form=True)
    assert content is not None
    assert hashlib.sha256(content).hexdigest() == running.fingerprint.replace(":", "").lower()
    certificate = x509.load_der_x509_certificate(content)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == [HERE]
    lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lasts.total_seconds() == 25 * 3600


def test_paths_without_the_token(running: Running) -> None:
    own = f"/{running.server.token}"
    for path in ("/", "/page.html", "/x/page.html", own, f"{own}/", f"{own}/../page.html"):
        status, content, _ = running.request("GET", path)
        assert (path, status, content) == (path, 404, b"")
    with running.connect() as connection:
        connection.sendall("GET /é/page.html HTTP/1.0\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 404 ")
    assert running.request("POST", "/x/report", b"{}", running.sign(b"{}"))[0] == 404
    assert running.request("DELETE", running.path("page.html"))[0] == 501
    assert running.accepts()


def test_another_key(running: Running) -> None:
    refused = 403, "the report is not signed with the key of this page's address"
    for headers in (
        {},
        {"EdgeKit-Signature": ""},
        {"EdgeKit-Signature": "0" * 64},
        {"EdgeKit-Signature": "é"},
        running.sign(b"another body"),
    ):
        assert running.report(b"{}", headers) == refused
    assert running.bodies == []
    assert running.accepts()


def test_figures_that_lie_do_not_end_the_server(running: Running) -> None:
    assert running.report(b"lies") == (422, "figures that lie")
    assert running.accepts()


def test_of_several_reports_one_is_accepted(running: Running) -> None:
    """The same report again and at the same time."""
    found: list[tuple[int, str]] = []
    in_threads(*[lambda: found.append(running.report(b"{}"))] * 4)
    assert [status for status, _ in sorted(found)].count(200) == 1
    assert {reason for status, reason in found if status == 409} <= {"a report was accepted already"}
    time.sleep(1.5)  # the others' threads may still be at work
    assert running.bodies == [b"{}"]


def test_a_report_of_another_server_is_refused(running: Running, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Running(tmp_path / "other")
    signature = other.sign(b"{}")
    assert other.accepts()
    assert running.report(b"{}", signature)[0] == 403
    assert running.accepts()


def test_a_gigabyte_is_not_read(running: Running) -> None:
    for length, status in ((1 << 30, 413), (BODY_BYTES + 1, 413), (10**30, 411), (-1, 411)):
        headers = {"Content-Length": str(length), **running.sign(b"")}
        with running.connect() as connection:
            client = http.client.HTTPSConnection(HERE)
            client.sock = connection
            client.request("POST", running.path("report"), headers=headers)
            response = client.getresponse()  # before any byte of the body
            assert response.status == status
            assert json.loads(response.read())["problem"]
    chunked = {"Transfer-Encoding": "chunked", "Content-Length": "2"}
    assert running.request("POST", running.path("report"), b"{}", chunked)[0] == 411
    assert running.report(bytes(BODY_BYTES))[0] == 200


def test_a_long_head_ends_the_connection(running: Running) -> None:
    line = f"GET {running.path('page.html')} HTTP/1.0\r\n".encode()
    for head in (
        b"G" * 20_000,
        line + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 900) for i in range(20)) + b"\r\n",
    ):
        with running.connect() as connection:
            try:
                connection.sendall(head)
                assert connection.recv(1) == b""
            except ConnectionError:
                pass
    assert running.accepts()


def ends_before_the_last(connection: socket.socket, pieces: list[bytes]) -> bool:
    """Send a piece five times a second; return whether the other end closes before it has all."""
    connection.settimeout(0.2)
    for piece in pieces:
        try:
            connection.sendall(piece)
            if connection.recv(1) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def wait_for_threads(count: int) -> None:
    """Wait until so many threads run: those of ended connections have ended."""
    for _ in range(600):
        if threading.active_count() <= count:
            return
        time.sleep(0.1)
    raise AssertionError(threading.enumerate())


def test_clients_that_are_slow(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece arrives in time, the whole does not."""
    monkeypatch.setattr(report_server, "REQUEST_SECONDS", 1.0)
    head = f"POST {running.path('report')} HTTP/1.0\r\nContent-Length: 1000\r\n\r\n".encode()
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname=HERE).do_handshake()
    with socket.create_connection((HERE, running.server.server_port)) as plain:
        assert ends_before_the_last(plain, [bytes([byte]) for byte in hello.read()])
    with running.connect() as connection:
        assert ends_before_the_last(connection, [b"G"] * 300)
    with running.connect() as connection:
        connection.sendall(head)
        assert ends_before_the_last(connection, [b"{"] * 300)
    monkeypatch.undo()  # a busy machine takes longer for a request that is right
    assert running.accepts()


def test_a_client_that_does_not_read(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_server, "RESPONSE_SECONDS", 0.5)
    monkeypatch.setattr(report_server, "RESPONSE_BYTES_PER_SECOND", 16 << 20)
    before = threading.active_count()
    with running.connect() as connection:
        connection.sendall(f"GET {running.path('large.bin')} HTTP/1.0\r\n\r\n".encode())
        time.sleep(0.3)
        assert threading.active_count() > before
        wait_for_threads(before)
    monkeypatch.undo()  # a busy machine takes longer for a request that is right
    assert running.accepts()


def test_connections_of_one_address_and_of_all(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    for name, limit in (("ADDRESS_CONNECTIONS", 3), ("CONNECTIONS", 4)):
        with monkeypatch.context() as patch:
            patch.setattr(report_server, "ADDRESS_CONNECTIONS", 100)
            patch.setattr(report_server, name, limit)
            kept = []
            for _ in range(limit):
                kept.append(running.connect())
            with pytest.raises((ssl.SSLError, ConnectionError)):
                running.connect()
            for connection in kept:
                connection.close()
            wait_for_threads(before)
    assert running.accepts()


def test_another_protocol_is_closed(running: Running, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection((HERE, running.server.server_port), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(1000)
    assert running.accepts()
    assert capfd.readouterr() == ("", "")


def test_a_server_ends_in_time(tmp_path: Path) -> None:
    context, _ = own_certificate(HERE)
    server = ReportServer(Address(HERE, 0), context, {}, lambda _: None)
    assert server.wait(0.5) is False
