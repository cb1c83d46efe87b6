"""Attacks on a gRPC port, from addresses of their own, by frames that no client's library sends.

    python -m tests.benchmarks.grpc_attacks NAME PORT SECONDS TOKEN

Only for servers on loopback. Prints one line of JSON: what was sent, and how the server ended connections.
"""

from __future__ import annotations

import json
import random
import select
import socket
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.fixtures import http2_frames as h2
from tests.fixtures.http2_frames import block, call_fields, connected, frame, settings

ADDRESSES = ("127.0.0.2", "127.0.0.3")
MESSAGE = struct.pack(">BI", 0, 4_100_000) + bytes(4_100_000)
END_S = time.monotonic()
TOKEN = (b"authorization", b"Bearer ")
COUNT: Counter[str] = Counter()
Fields = list[tuple[bytes, bytes]]


class Peer:
    """A client that heeds windows and counts answers.

    Attributes:
        sent: Open calls, and how much of their message was sent.
    """

    def __init__(self, number: int = 0, hello: bytes = settings()) -> None:
        self.wire, self.next, self.limit = connected_again(number, hello), 1, 100
        self.window = self.initial = 65535
        self.windows: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self._buffer, self.dead = b"", False
        self.read(0.05)

    def open(self, fields: Fields, flags: int = h2.END_HEADERS) -> int:
        number, self.next = self.next, self.next + 2
        self.windows[number], self.sent[number] = self.initial, 0
        self.send(frame(h2.HEADERS, flags, number, block(fields)))
        COUNT["calls"] += 1
        return number

    def send(self, data: bytes) -> None:
        try:
            self.wire.sendall(data)
            COUNT["bytes"] += len(data)
        except OSError as problem:
            COUNT[f"ended: {type(problem).__name__}"] += not self.dead
            self.dead = True

    def message(self, number: int, content: bytes, hold: bool = False) -> None:
        """Send as much of a message as the windows allow; ``hold``: never its last byte."""
        at, end = self.sent[number], len(content) - hold
        size = min(end - at, self.window, self.windows.get(number, 0), 16384)
        if size > 0:
            last = h2.END_STREAM if at + size == len(content) else 0
            self.window -= size
            self.windows[number] -= size
            self.sent[number] += size
            self.send(frame(h2.DATA, last, number, content[at : at + size]))

    def read(self, seconds: float = 0.0) -> None:
        if self.dead or not select.select([self.wire], [], [], seconds)[0]:
            return
        try:
            got = self.wire.recv(1 << 18)
        except OSError:
            got = b""
        if not got:
            COUNT["ended: by the server"] += 1
            self.dead = True
        data, at = self._buffer + got, 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at < 9 + size:
                break
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            self._handle(data[at + 3], data[at + 4], stream, data[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = data[at:]

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == h2.SETTINGS and not flags & 1:
            for key, value in struct.iter_unpack(">HI", payload):
                if key == 3:
                    self.limit = min(value, 100)
                if key == 4:
                    for number in self.windows:
                        self.windows[number] += value - self.initial
                    self.initial = value
            self.send(frame(h2.SETTINGS, 1, 0))
        elif kind == h2.WINDOW and stream == 0:
            self.window += int.from_bytes(payload, "big")
        elif kind == h2.WINDOW and stream in self.windows:
            self.windows[stream] += int.from_bytes(payload, "big")
        elif kind == h2.PING and not flags & 1:
            self.send(frame(h2.PING, 1, 0, payload))
        elif kind == h2.DATA and payload:
            self.send(frame(h2.WINDOW, 0, 0, len(payload).to_bytes(4, "big")))
        if kind == h2.RESET or (kind in (h2.DATA, h2.HEADERS) and flags & h2.END_STREAM):
            self.windows.pop(stream, None)
            self.sent.pop(stream, None)
            COUNT["ended calls"] += 1
        if kind == h2.GOAWAY:
            COUNT[f"goaway {payload[8:40].decode('latin-1')}"] += 1


def connected_again(number: int, hello: bytes) -> socket.socket:
    while True:
        try:
            wire = connected(PORT, hello, ADDRESSES[number % 2])
            COUNT["connections"] += 1
            return wire
        except OSError as problem:
            COUNT[f"connect: {type(problem).__name__}"] += 1
            if time.monotonic() > END_S:
                raise SystemExit from None
            time.sleep(0.01)


def each(count: int, turn: Callable[[Peer], None], make: Callable[[int], Peer] = Peer, s: float = 0) -> None:
    """Keep so many peers, and take one step with each; one that is dead is replaced."""
    peers: list[Peer] = []
    while time.monotonic() < END_S:
        while len(peers) < count and time.monotonic() < END_S:
            peers.append(make(len(peers)))
        for peer in peers:
            peer.read(0.001)
            turn(peer)
        peers = [peer for peer in peers if not peer.dead]
        time.sleep(s)


def full(fields: Fields, flags: int = h2.END_HEADERS, first: bytes = b"") -> Callable[[Peer], None]:
    """Return a step that keeps as many calls open as the server allows."""

    def turn(peer: Peer) -> None:
        while len(peer.windows) < peer.limit and not peer.dead:
            number = peer.open(fields, flags)
            if first:
                peer.send(frame(h2.DATA, 0, number, first))

    return turn


def collect(method: str, hold: bool, *more: tuple[bytes, bytes], content: bytes = MESSAGE) -> None:
    opened = full(call_fields(method, *more))

    def turn(peer: Peer) -> None:
        opened(peer)
        for number in list(peer.sent):
            for _ in range(4):
                if number in peer.sent:
                    peer.message(number, content, hold)

    each(8, turn)


def calls() -> None:
    """Calls without a token and a message, as many as go through."""
    each(8, full(call_fields("ModelInfer"), h2.END_HEADERS | h2.END_STREAM))


def large() -> None:
    """Calls with 4.1 MB and no token."""
    collect("ModelInfer", False)


def held_live() -> None:
    """ServerLive, which needs no token, with 4.1 MB less a byte."""
    collect("ServerLive", True)


def held_token() -> None:
    """The same with a token: the memory for requests bounds it."""
    collect("ModelInfer", True, TOKEN)


def unread() -> None:
    """Calls that are answered, of clients that give no window."""
    opened = full(call_fields("ServerLive"), h2.END_HEADERS | h2.END_STREAM)

    def turn(peer: Peer) -> None:
        opened(peer)
        peer.send(frame(h2.WINDOW, 0, 0, b"\0\0\0\1"))

    each(9, turn, lambda number: Peer(number, settings(window=0)), 0.5)


def opened() -> None:
    """Calls without a message."""
    each(12, full(call_fields("ServerLive")), s=0.01)


def opened_token() -> None:
    """The same with a token: they hold places."""
    each(12, full(call_fields("ModelInfer", TOKEN)), s=0.01)


def slow() -> None:
    """A message of 600 kB, a byte a second, with a token."""
    opened = full(call_fields("ModelInfer", TOKEN), first=struct.pack(">BI", 0, 600_000))

    def turn(peer: Peer) -> None:
        for number in list(peer.windows):
            peer.send(frame(h2.DATA, 0, number, b"x"))
        opened(peer)

    each(10, turn, s=1)


def idle() -> None:
    _hold(h2.PREFACE + settings())


def silent() -> None:
    _hold(b"")


def _hold(hello: bytes) -> None:
    """Connections that send nothing more, 1,024 at once."""
    wires: list[socket.socket] = []
    while time.monotonic() < END_S:
        while len(wires) < 1024 and time.monotonic() < END_S:
            try:
                source = (ADDRESSES[len(wires) % 2], 0)
                wires.append(socket.create_connection(("127.0.0.1", PORT), 5, source))
                wires[-1].sendall(hello)
                wires[-1].setblocking(False)
                COUNT["connections"] += 1
            except OSError:
                time.sleep(0.01)
        alive = []
        for wire in wires:
            try:
                if wire.recv(65536):
                    alive.append(wire)
            except BlockingIOError:
                alive.append(wire)
            except OSError:
                pass
        wires = alive
        time.sleep(0.2)


def headers() -> None:
    """Headers of 7.5 kB."""
    more = [(b"x-%03d" % number, b"v" * 110) for number in range(60)]
    each(8, full(call_fields("ServerLive", *more)))


def continuation() -> None:
    """Headers that never end."""
    part = frame(h2.CONTINUATION, 0, 1, block([(b"x-y", b"v" * 16000)]))

    def make(number: int) -> Peer:
        peer = Peer(number)
        peer.send(frame(h2.HEADERS, 0, 1, block(call_fields("ServerLive"))))
        return peer

    each(8, lambda peer: peer.send(part), make)


def table() -> None:
    """A table of 4 GB for the server's headers, and methods of ever new names."""

    def turn(peer: Peer) -> None:
        while len(peer.windows) < peer.limit and not peer.dead:
            peer.open(call_fields(f"M{random.random()}"), h2.END_HEADERS | h2.END_STREAM)

    each(8, turn, lambda number: Peer(number, settings(table=2**32 - 1)))


def rapid_reset() -> None:
    """Calls that are reset at once."""
    fields = block(call_fields("ModelInfer"))

    def turn(peer: Peer) -> None:
        out = b""
        for _ in range(100):
            out += frame(h2.HEADERS, h2.END_HEADERS, peer.next, fields) + frame(
                h2.RESET, 0, peer.next, b"\0\0\0\x08"
            )
            peer.next += 2
        COUNT["calls"] += 100
        peer.send(out)

    each(8, turn)


def ping() -> None:
    each(8, lambda peer: peer.send(frame(h2.PING, 0, 0, b"12345678") * 500))


def many_settings() -> None:
    each(8, lambda peer: peer.send(settings(window=70000) * 500))


def _hang_up(last: bytes) -> None:
    infer, live = block(call_fields("ModelInfer", TOKEN)), block(call_fields("ServerLive"))
    piece = b""
    for number in range(20):
        stream = 2 * number + 1
        piece += frame(h2.HEADERS, h2.END_HEADERS, stream, infer if number % 2 else live)
        if number % 4:
            piece += frame(h2.DATA, h2.END_STREAM, stream, struct.pack(">BI", 0, 100) + bytes(100))
        else:
            piece += frame(h2.DATA, 0, stream, struct.pack(">BI", 0, 5000) + bytes(100))
    number = 0
    while time.monotonic() < END_S:
        number += 1
        wire = connected_again(number, settings())
        try:
            wire.sendall(piece + last)
            if number % 3 == 0:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if number % 3 == 1:
                time.sleep(0.003)
        except OSError:
            pass
        wire.close()


def hang_up() -> None:
    """Connections that end after 20 calls, half of them with a token."""
    _hang_up(b"")


def go_away() -> None:
    """The same, with h2.GOAWAY at their end."""
    _hang_up(frame(h2.GOAWAY, 0, 0, bytes(8)))


def gzip_bomb() -> None:
    """Messages of 140 kB that unfold to 32 MB, with a token."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(32)) + packer.flush()
    content = struct.pack(">BI", 1, len(packed)) + packed
    collect("ModelInfer", False, (b"grpc-encoding", b"gzip"), TOKEN, content=content)


def rubbish() -> None:
    """Paths, fields and frames of no form; the first path ended grpc.aio."""
    draw = random.Random(7)
    paths = (b"/\xff", b"", b"/", b"//", b"/a/b", b"\xff\xfe/\x80", b"*", b"/" + b"a" * 4000, b"/x/\0")
    more: list[Fields] = [
        [], [(b"authorization", b"\xff\0")], [(b"x-bin", b"!!!")], [(b"grpc-timeout", b"1X")],
        [(b"grpc-encoding", b"\xff")], [(b"\xff\xfe", b"v")],
    ]  # fmt: skip

    def turn(peer: Peer) -> None:
        for _ in range(10):
            stream, peer.next = peer.next, peer.next + 2
            fields: Any = call_fields("", *draw.choice(more), path=draw.choice(paths))
            peer.send(frame(h2.HEADERS, h2.END_HEADERS, stream, block(fields)))
            peer.send(
                frame(
                    h2.DATA, h2.END_STREAM, stream, draw.choice((b"", b"\0", b"\1\0\0\0\1x", b"\2\0\0\0\0"))
                )
            )
        if peer.next > 400:
            kind, flags, stream = draw.randrange(256), draw.randrange(256), draw.randrange(2**31)
            peer.send(frame(kind, flags, stream, draw.randbytes(64)))
            peer.wire.close()
            peer.dead = True

    each(16, turn)


ATTACKS: dict[str, Callable[[], None]] = {
    act.__name__: act
    for act in (
        calls, large, held_live, held_token, idle, silent, unread, opened, opened_token, slow, headers,
        continuation, table, rapid_reset, ping, many_settings, hang_up, go_away, gzip_bomb, rubbish,
    )
}  # fmt: skip

if __name__ == "__main__":
    PORT, END_S = int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
    TOKEN = (b"authorization", b"Bearer " + sys.argv[4].encode())
    try:
        ATTACKS[sys.argv[1]]()
    finally:
        print(json.dumps(COUNT))
