"""Attacks on an HTTP port, for bench_serve_attacks. Each takes an ``Attacker``."""

from __future__ import annotations

import base64
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
LARGE_BODY = (
    b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}],'
    b' "parameters": {"binary_data_output": true}}'
)
SOURCE = "127.0.0.2"
WS = b"/v2/models/m/stream"


class Attacker:
    """One attacker."""

    def __init__(self, port: int, token: str, seconds: float) -> None:
        self._port, self.end_s = port, time.monotonic() + seconds
        self.post = POST % token.encode()
        large = self.post.replace(b"/m/", b"/large/")
        self.large = large + b"Content-Length: %d\r\n\r\n" % len(LARGE_BODY) + LARGE_BODY
        self._upgrade = b"Authorization: Bearer " + token.encode() + b"\r\nUpgrade: websocket\r\n"

    def goes_on(self) -> bool:
        return time.monotonic() < self.end_s

    def wire(self, buffer: int | None = None) -> socket.socket:
        while True:
            wire = socket.socket()
            if buffer:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            wire.settimeout(3)
            try:
                wire.bind((SOURCE, 0))
                wire.connect(("127.0.0.1", self._port))
                return wire
            except OSError:
                wire.close()
                time.sleep(0.02)
                if not self.goes_on():
                    raise

    def websocket(self) -> socket.socket:
        wire, key = self.wire(), base64.b64encode(os.urandom(16))
        wire.sendall(
            b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n" % WS
            + self._upgrade
            + b"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % key
        )
        if b" 101 " not in wire.recv(4096)[:20]:
            wire.close()
            time.sleep(0.1)
            raise ConnectionRefusedError
        return wire

    def hold(
        self, count: int, first: bytes, step: bytes = b"", reads: bool = True, buffer: int | None = None
    ) -> None:
        """Keep so many connections, which send ``first`` at once and ``step`` each second."""
        held: list[socket.socket] = []
        while self.goes_on():
            while len(held) < count and self.goes_on():
                wire = self.wire(buffer)
                held += [wire] if sent(wire, first) else []
            time.sleep(0.5)
            held = [wire for wire in held if not (reads and ended(wire)) and sent(wire, step)]

    def crowd(self, count: int, turn: Callable[[socket.socket], None], websocket: bool = False) -> None:
        """Run so many threads, each with a new connection for each turn."""

        def one() -> None:
            while self.goes_on():
                with suppress(OSError), self.websocket() if websocket else self.wire() as wire:
                    turn(wire)

        threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.1, self.end_s + 3 - time.monotonic()))

    def flood(self, first: bytes, block: bytes, count: int = 4, websocket: bool = False) -> None:
        """Send a block again and again, until the server closes."""

        def turn(wire: socket.socket) -> None:
            wire.settimeout(1)
            wire.sendall(first)
            while self.goes_on() and sent(wire, block) and not ended(wire):
                pass

        self.crowd(count, turn, websocket)


def sent(wire: socket.socket, data: bytes) -> bool:
    """Send, and return whether the connection is still open."""
    try:
        wire.sendall(data)
    except TimeoutError:
        return True
    except OSError:
        wire.close()
        return False
    return True


def ended(wire: socket.socket) -> bool:
    """Return whether the server has closed, without waiting."""
    try:
        if wire.recv(1 << 16, socket.MSG_DONTWAIT):
            return False
    except BlockingIOError:
        return False
    except OSError:
        pass
    wire.close()
    return True


def frame(kind: int, size: int, is_last: bool = True) -> bytes:
    head = bytes([kind | (0x80 if is_last else 0), 0x80 | (size if size < 126 else 127)])
    return head + (b"" if size < 126 else struct.pack(">Q", size)) + bytes(4)


def pipeline(by: Attacker, count: int) -> None:
    def turn(wire: socket.socket) -> None:
        while by.goes_on():
            wire.sendall(LIVE * count)
            seen = 0
            while seen < count:
                received = wire.recv(1 << 18)
                if not received:
                    return
                seen += received.count(b"HTTP/1.1 ")

    by.crowd(8, turn)


def hang_ups(by: Attacker) -> None:
    def turn(wire: socket.socket) -> None:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if os.urandom(1)[0] % 2:
            wire.sendall(by.post + b"Content-Length: 600000\r\n\r\n" + bytes(300_000))
        else:
            wire.sendall(by.large)
            wire.recv(1000)

    by.crowd(8, turn)


def held_websockets(by: Attacker, first: bytes, count: int) -> None:
    held: list[socket.socket] = []
    while by.goes_on():
        while len(held) < count and by.goes_on():
            with suppress(OSError):
                wire = by.websocket()
                held += [wire] if sent(wire, first) else []
        time.sleep(0.5)
        held = [wire for wire in held if not ended(wire)]


def tiny_chunks(size: int) -> bytes:
    chunk = b"%x\r\n" % size + b"a" * size + b"\r\n"
    return chunk * max(1, 65536 // len(chunk))


CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"".join(b"x-%d: a\r\n" % number for number in range(10_000))
HALF = b"Content-Length: %d\r\n\r\n" % (7 << 20) + bytes(4 << 20)
ATTACKS: dict[str, Callable[[Attacker], None]] = {
    "1,000 idle": lambda by: by.hold(1000, b""),
    "500 heads, a byte a second": lambda by: by.hold(500, by.post + b"X-a: ", b"a"),
    "500 bodies, a byte a second": lambda by: by.hold(500, by.post + b"Content-Length: 9999\r\n\r\n", b"a"),
    "500 bodies of 7 MB, 4 MB sent": lambda by: by.hold(500, by.post + HALF),
    "100 unread answers of 8 MB": lambda by: by.hold(100, by.large, reads=False, buffer=4096),
    "50 x 1,000 unread answers": lambda by: by.hold(50, by.large * 1000, reads=False, buffer=4096),
    "8 x 40 pipelined": lambda by: pipeline(by, 40),
    "8 x 1,000 pipelined": lambda by: pipeline(by, 1000),
    "endless chunks of 64 kB": lambda by: by.flood(by.post + CHUNKED, tiny_chunks(65536)),
    "endless chunks of a byte": lambda by: by.flood(by.post + CHUNKED, tiny_chunks(1)),
    "heads of 100 kB": lambda by: by.flood(by.post + b"X-a: ", b"a" * 100_000),
    "heads of 10,000 headers": lambda by: by.flood(by.post, MANY),
    "rubbish": lambda by: by.flood(b"", os.urandom(3000) + b"\r\n\r\n"),
    "hang-ups": hang_ups,
    "500 WebSockets, idle": lambda by: held_websockets(by, b"", 500),
    "64 WebSockets, 31 of 32 MB": lambda by: held_websockets(by, frame(2, 32 << 20) + bytes(31 << 20), 64),
    "WebSocket fragments": lambda by: by.flood(
        b"", (frame(0, 16384, is_last=False) + bytes(16384)) * 4, websocket=True
    ),
    "WebSocket pings": lambda by: by.flood(b"", (frame(9, 100) + bytes(100)) * 500, websocket=True),
    "WebSocket messages of a byte": lambda by: by.flood(b"", (frame(2, 1) + b"x") * 5000, websocket=True),
}
