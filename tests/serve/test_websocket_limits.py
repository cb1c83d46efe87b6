"""What a WebSocket's client may send before it is stopped, and the memory that its messages take."""

from __future__ import annotations

import base64
import gc
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve import connection_watch
from tests.fixtures.servers import Running, running
from tests.fixtures.threads import until

protocol = pytest.importorskip("edgekit.serve.websocket_protocol", reason="websockets is not installed")
pytestmark = pytest.mark.needs_ort
MB = 1 << 20


@pytest.fixture
def server(bundle: Path) -> Iterator[Running]:
    with running({("net", "1"): bundle}, deadline_ms=30_000) as found:
        until(lambda: found.server.started)  # the app of its configuration is loaded
        yield found


def websocket(server: Running, extensions: str = "permessage-deflate") -> tuple[socket.socket, bytes]:
    wire = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    key = base64.b64encode(os.urandom(16)).decode()
    wire.sendall(
        f"GET /v2/models/net/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Extensions: {extensions}\r\n\r\n".encode()
    )
    return wire, wire.recv(4096)


def frame(content: bytes, kind: int = 0x82, size: int | None = None) -> bytes:
    """A frame with a mask of zeros; ``size``: what it says its length is."""
    return (
        bytes([kind, 0x80 | 127])
        + struct.pack(">Q", len(content) if size is None else size)
        + bytes(4)
        + content
    )


def read_until_closed(wire: socket.socket) -> bytes:
    received = b""
    try:
        while more := wire.recv(4096):
            received += more
    except ConnectionResetError:
        pass
    return received


class Receives:
    """An app that keeps what a WebSocket's client sends."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.messages.append(message)


class Sends:
    """An app that sends more than the buffers of a connection take."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(2):
            await send({"type": "websocket.send", "bytes": bytes(32 * MB)})
        await receive()


def within(server: Running, app: Any) -> Any:
    """An app instead of the server's, with its limits."""
    app.memory = server.app.memory
    return app


def test_websockets_do_not_compress(server: Running) -> None:
    wire, head = websocket(server)
    with wire:
        assert head.startswith(b"HTTP/1.1 101")
        assert b"permessage-deflate" not in head.lower()


def test_a_message_is_held_as_long_as_it_takes_memory(server: Running) -> None:
    memory = server.app.memory
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(bytes(3_000_000), size=4_000_000))
        until(lambda: memory.held_bytes >= 6_000_000)
        wire.sendall(bytes(1_000_000))
        assert b'"status":400' in wire.recv(4096)  # it is no picture
        until(lambda: memory.held_bytes == 0)
        for _ in range(3):
            wire.sendall(frame(b"no picture"))
            assert b'"status":400' in wire.recv(4096)
        wire.sendall(frame(b"", 0x89))  # a ping
        assert wire.recv(4096)[:1] == b"\x8a"
        assert memory.held_bytes == 0
        wire.sendall(frame(bytes(3_000_000), size=4_000_000))
        until(lambda: memory.held_bytes >= 6_000_000)
    until(lambda: memory.held_bytes == 0)


def test_a_connection_leaves_nothing_to_collect(server: Running) -> None:
    """Collections of Python stop the loop; what refers to itself would cost one every few requests."""
    gc.collect()
    gc.disable()
    try:
        for wire, _ in (websocket(server), websocket(server)):
            wire.sendall(frame(b"no picture"))
            assert b'"status":400' in wire.recv(4096)
            wire.close()
        for body in (b"{}", b"{"):  # the second one does not come whole
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
                wire.sendall(
                    b"POST /v2/models/net/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
                    + body
                )
                if body == b"{}":
                    assert wire.recv(4096).startswith(b"HTTP/1.1 400")
        until(lambda: not len(server.server.server_state.connections))
        time.sleep(0.2)  # the last task of the loop is done
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = {type(each).__module__.partition(".")[0] for each in gc.garbage}
        assert kinds.isdisjoint({"edgekit", "uvicorn", "httptools", "websockets", "asyncio", "uvloop"})
    finally:
        gc.garbage.clear()
        gc.set_debug(0)
        gc.enable()


def test_messages_beyond_the_budget_end_their_connection(server: Running) -> None:
    server.app.memory.limit_bytes = 8 * MB
    wire, _ = websocket(server)
    with wire:
        with suppress(OSError):
            wire.sendall(frame(bytes(16_000_000)))
        told = read_until_closed(wire)
    assert told == b"" or b"this request needs" in told
    until(lambda: server.app.memory.held_bytes == 0)
    assert server.app.memory.peak_bytes <= 8 * MB


def test_a_message_of_many_frames_and_a_long_text(server: Running) -> None:
    from edgekit.serve.websocket_protocol import FRAMES

    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(b"x" * 1_000_000, 0x81))
        assert b"send each picture as a binary message" in wire.recv(4096)
        wire.sendall(frame(b"", 0x02) + frame(b"", 0x00) * (FRAMES - 2) + frame(b"", 0x80))
        assert b'"status":400' in wire.recv(4096)
        wire.sendall(frame(b"", 0x02) + frame(b"", 0x00) * FRAMES)
        assert b"a message has at most 4096 frames" in read_until_closed(wire)


def test_pings_whose_answers_are_never_read(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = server.server.config
    monkeypatch.setattr(connection_watch, "UNREAD_SECONDS", 3600.0)  # no other limit ends it
    monkeypatch.setattr(protocol, "PINGS", 1 << 30)
    config.ws_ping_interval = None
    pings = frame(bytes(125), 0x89) * 500
    wire, _ = websocket(server)
    with wire:
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(2000):
                wire.sendall(pings)
        until(lambda: len(server.server.server_state.connections) == 0)


def test_a_client_that_does_not_read_has_a_time(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = server.server.config
    monkeypatch.setattr(connection_watch, "UNREAD_SECONDS", 0.3)
    config.ws_ping_interval = None
    config.loaded_app = within(server, Sends())
    wire, _ = websocket(server)
    with wire:
        until(lambda: len(server.server.server_state.connections) == 0)


def test_a_text_is_not_kept(server: Running) -> None:
    """Its characters may take four times the bytes that came."""
    config: Any = server.server.config
    app = config.loaded_app = within(server, Receives())
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(b"a" * 1000 + "\U0001f600".encode(), 0x81))
        wire.sendall(frame(b"a picture"))
        until(lambda: len(app.messages) == 2)
    assert [(each.get("text"), each.get("bytes")) for each in app.messages] == [
        ("", None),
        (None, b"a picture"),
    ]


def test_bytes_beyond_the_budget_are_refused_before_they_are_kept(server: Running) -> None:
    memory = server.app.memory
    memory.limit_bytes = 10_000
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(bytes(4000), size=100_000))
        until(lambda: memory.held_bytes >= 8000)
        wire.sendall(bytes(2000))  # in one piece
        told = read_until_closed(wire)
    assert told[2:4] == (1013).to_bytes(2, "big")
    assert told[4:].startswith(b"this request needs 0 MB of memory")
    assert memory.peak_bytes < 10_000


def test_a_session_that_is_idle_is_kept(server: Running) -> None:
    wire, _ = websocket(server)
    with wire:
        until(lambda: len(server.server.server_state.connections) == 1)
        (own,) = server.server.server_state.connections
        assert own.due_s == float("inf")  # the server does not wait for it
        wire.sendall(frame(b"no picture"))
        assert b'"status":400' in wire.recv(4096)


def test_more_pings_than_a_client_may_send(server: Running) -> None:
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(b"", 0x89) * protocol.PINGS)
        received = b""
        while len(received) < 2 * protocol.PINGS:
            received += wire.recv(4096)
        with suppress(OSError):
            wire.sendall(frame(b"", 0x89) * 10 * protocol.PINGS)
        assert b"more than 64 pings in a second" in read_until_closed(wire)


def test_small_messages_wait_until_the_app_takes_them(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came at once are parsed piece by piece."""
    monkeypatch.setattr(protocol, "PIECE_BYTES", 64)
    wire, _ = websocket(server)
    with wire:
        wire.sendall(frame(b"x") * 500)
        received = b""
        while received.count(b'"index"') < 500:
            received += wire.recv(1 << 16)
    until(lambda: server.app.memory.held_bytes == 0)
