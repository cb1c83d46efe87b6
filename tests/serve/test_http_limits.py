"""What a client may send over HTTP before it is stopped, and how long it may take."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve import connection_watch, request_memory
from edgekit.serve.connection_watch import ConnectionLimits, ConnectionWatch
from tests.fixtures.servers import Running, running
from tests.fixtures.threads import until

protocol = pytest.importorskip("edgekit.serve.http_protocol", reason="httptools is not installed")
pytestmark = pytest.mark.needs_ort
HOST = b"Host: 127.0.0.1\r\n"
BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": [0.0] * 6}]}
).encode()
LIVE = b"GET /v2/health/live HTTP/1.1\r\n" + HOST


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Running]:
    with running({("net", "1"): bundle}) as found:
        yield found


def wire_to(server: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def read_all(wire: socket.socket) -> bytes:
    """Until the server closes."""
    received = b""
    try:
        while more := wire.recv(1 << 16):
            received += more
    except ConnectionResetError:  # it did not read all that was sent
        pass
    return received


def sent_until_closed(wire: socket.socket, piece: bytes, limit: int = 64 << 20) -> int:
    """How much a client could send."""
    size = 0
    try:
        while size < limit:
            wire.sendall(piece)
            size += len(piece)
    except OSError:
        pass
    return size


@pytest.mark.parametrize("piece", [b"a" * 65536, b"a:b\r\n" * 13000])
def test_a_head_without_end_is_refused_before_it_takes_memory(server: Running, piece: bytes) -> None:
    with wire_to(server) as wire:
        wire.sendall(LIVE + (b"X: " if piece[:3] == b"aaa" else b""))
        assert sent_until_closed(wire, piece) < 16 << 20  # in the buffers of the system
    with wire_to(server) as wire:
        wire.sendall(LIVE + b"X: " + b"a" * protocol.HEAD_BYTES)
        told = read_all(wire)
    assert told.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert json.loads(told.partition(b"\r\n\r\n")[2]) == {
        "error": "the head of a request has at most 65536 bytes"
    }


def test_the_number_of_headers(server: Running) -> None:
    for more, status in ((0, b"200"), (1, b"431")):
        with wire_to(server) as wire:
            lines = b"a: b\r\n" * (protocol.HEADERS - 2 + more)
            wire.sendall(LIVE + b"Connection: close\r\n" + lines + b"\r\n")
            told = read_all(wire)
        assert told.split()[1] == status
    assert b"a request has at most 100 headers" in told


def test_a_trailer_without_end_is_refused(server: Running) -> None:
    with wire_to(server) as wire:
        head = b"POST /v2/repository/index HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
        wire.sendall(head + b"2\r\n{}\r\n0\r\nX: ")
        assert sent_until_closed(wire, b"a" * 65536) < 16 << 20


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What uvicorn logs as an error: an app that failed, e.g. as it wrote to a closed connection."""
    lines: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def test_more_requests_than_a_connection_may_have_waiting(server: Running, logged: list[str]) -> None:
    """Those before them are answered in their order, then the connection is closed."""
    for count in (protocol.PIPELINED + 2, 40, 400):
        with wire_to(server) as wire:
            names = [b"GET /v2/models/%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(count)]
            wire.sendall(b"".join(names))
            answers = read_all(wire).split(b"HTTP/1.1 404")[1:]
        assert len(answers) == protocol.PIPELINED + 1
        assert [b"no model '%d'" % number in answer for number, answer in enumerate(answers)] == [True] * 17
        assert b"connection: close" in answers[-1]
    assert logged == []


@pytest.mark.parametrize("tail", [b"\0", b"POST /v2 HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n"])
def test_clients_that_end_while_they_are_answered(server: Running, tail: bytes, logged: list[str]) -> None:
    """Answers of before come in their order or not at all, and the app writes to no closed connection."""
    head = b"POST /v2/models/net/infer HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(BODY)
    for count in (1, 2, 16, 40):
        for sent in ((head + BODY) * count, (head + BODY) * count + tail, (LIVE + b"\r\n") * count + tail):
            with wire_to(server) as wire:
                wire.sendall(sent)
                wire.shutdown(socket.SHUT_WR)
                answers = read_all(wire).split(b"HTTP/1.1 ")[1:]
            assert {answer[:3] for answer in answers[:-1]} <= {b"200"}
    assert server.get("/v2/health/live")[0] == 200
    assert logged == []


@pytest.mark.parametrize(
    ("size", "count", "status", "message"),
    [
        (1, 1024, 400, b"the request is not JSON"),
        (1, 1100, 400, b"the body has more than 1024 chunks, and they are too small"),
        (64, 5000, 413, b"the body is larger than"),
    ],
)
def test_a_body_of_many_small_chunks(
    server: Running, size: int, count: int, status: int, message: bytes
) -> None:
    head = b"POST /v2/models/net/infer HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    with wire_to(server) as wire:
        wire.sendall(head)
        wire.sendall((b"%x\r\n" % size + b" " * size + b"\r\n") * count + b"0\r\n\r\n")
        told = wire.recv(1 << 16)
    assert (int(told.split()[1]), message in told) == (status, True), told


def test_a_body_that_comes_too_slowly(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends steadily has the time that its line needs."""
    assert 5_000_000 / protocol.BYTES_PER_SECOND > 60  # a photograph over 3G
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.2)
    head = b"POST /v2/models/net/infer HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(BODY)
    monkeypatch.setattr(protocol, "BYTES_PER_SECOND", 1)
    with wire_to(server) as wire:
        wire.sendall(head + BODY[:50])
        time.sleep(1.5)
        wire.sendall(BODY[50:])
        assert b"200 OK" in wire.recv(4096)
    with wire_to(server) as wire:
        wire.sendall(head)
        told = read_all(wire)
    assert told.split()[1] == b"408"
    assert b"the body did not arrive within 0.2 s" in told


def test_the_rest_of_a_body_after_its_answer(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REST_SECONDS", 0.3)
    with wire_to(server) as wire:
        wire.sendall(LIVE + b"Content-Length: 1000000000\r\n\r\n")
        assert b"200 OK" in wire.recv(4096)
        wire.sendall(b"x")
        assert read_all(wire) == b""


def test_how_much_may_come_after_an_answer(server: Running) -> None:
    with wire_to(server) as wire:
        wire.sendall(LIVE + b"Content-Length: 1000000000\r\n\r\n")
        assert b"200 OK" in wire.recv(4096)
        assert sent_until_closed(wire, bytes(65536)) < request_memory.DISCARDED_BYTES + (16 << 20)


def test_line_breaks_do_not_keep_an_idle_connection(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "KEPT_SECONDS", 0.3)
    with wire_to(server) as wire:
        wire.sendall(LIVE + b"\r\n")
        assert b"200 OK" in wire.recv(4096)
        wire.sendall(b"\r\n")
        assert read_all(wire) == b""


def test_an_answer_that_is_never_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request, whose answer does not fit into the buffers: no other limit ends its connection."""

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):  # the second waits until the first is read
            await send({"type": "http.response.body", "body": bytes(32 << 20), "more_body": more})

    monkeypatch.setattr(connection_watch, "UNREAD_SECONDS", 0.3)
    with running({("net", "1"): bundle}) as own:
        until(lambda: own.server.started)  # its app is loaded
        own.server.config.loaded_app = large
        open_connections = own.server.server_state.connections
        with wire_to(own) as wire:
            wire.sendall(LIVE + b"\r\n")
            until(lambda: len(open_connections) == 1)
            until(lambda: len(open_connections) == 0)


@pytest.mark.parametrize(("total", "looks"), [(80, True), (4, False)], ids=["address", "all"])
def test_more_connections_than_an_address_or_all_may_have(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, total: int, looks: bool
) -> None:
    """A new connection beyond the total does not wait for the next look of the watch."""
    if not looks:
        monkeypatch.setattr(ConnectionWatch, "look", lambda *_: None)
    with running({("net", "1"): bundle}, connections=ConnectionLimits(total=total, address=4)) as own:
        idle = [wire_to(own) for _ in range(12)]
        try:
            if looks:
                until(lambda: len(own.server.server_state.connections) == 4)
            assert own.get("/v2/health/live")[0] == 200
            assert [read_all(wire) for wire in idle[:8]] == [b""] * 8  # the oldest made room
        finally:
            for wire in idle:
                wire.close()
