"""``edgekit serve`` in a process of its own, and its answers to bytes over HTTP, gRPC and WebSocket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from edgekit.serve.grpc_messages import SERVICE
from tests.fixtures.classifiers import classifiers

SECONDS = 60.0
"""Longest time that an answer may take."""
MASK = b"\x11\x22\x33\x44"
NOT_FINITE = b"are NaN or infinite; the input"


class Answer(NamedTuple):
    """What came back: a status of HTTP or a code of gRPC, and the content."""

    status: str
    content: Any


class Server:
    """``edgekit serve`` in a child, and connections to it.

    Args:
        folder: Of its bundle, its cache and its log.
    """

    def __init__(self, folder: Path) -> None:
        bundle = folder / "small.edgekit"
        if not bundle.exists():
            classifiers(folder)
        token = folder / "token"
        token.write_text("an-admin-that-nobody-is")
        code = "from edgekit.cli import main; main()"
        line = [sys.executable, "-c", code, "serve", f"net={bundle}", "--listen", "127.0.0.1:0", "--json"]
        line += ["--grpc", "127.0.0.1:0", "--admin-token-file", str(token), "--deadline-ms", "30000"]
        self._log = folder / "log"
        environment = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1"}
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.port, self._read = int(said["url"].rpartition(":")[2]), 0
        self.channel = grpc.insecure_channel(said["grpc"], [("grpc.use_local_subchannel_pool", 1)])
        grpc.channel_ready_future(self.channel).result(SECONDS)
        self._kept: socket.socket | None = None

    def close(self) -> None:
        """End it by SIGTERM, as an orchestrator does."""
        self.channel.close()
        if self._kept is not None:
            self._kept.close()
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if self.process.wait(SECONDS) != 0:
            raise AssertionError(f"the server ended with {self.process.returncode}")

    def memory_kb(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4

    def problem(self) -> str:
        """What the process or its log tells; "" where all is well."""
        if self.process.poll() is not None:
            return f"the process ended with {self.process.returncode}"
        with open(self._log, "rb") as log:
            log.seek(self._read)
            said = log.read()
        self._read += len(said)
        engine = [line for line in said.splitlines() if line.startswith(b"  ort-") and NOT_FINITE not in line]
        return said[-3000:].decode(errors="replace") if b"Traceback" in said or engine else ""

    def connected(self) -> socket.socket:
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire

    # --- one request ---------------------------------------------------------------------------------------

    def whole(self, request: bytes) -> Answer:
        """The answer to a request that is one, over a connection that is kept."""
        for _ in range(2):  # the kept one may have been closed meanwhile
            fresh = self._kept is None
            wire = self._kept = self._kept or self.connected()
            try:
                wire.sendall(request)
                answer, closes = _answer(wire)
            except OSError:
                answer, closes = Answer("", "closed"), True
            if closes:
                wire.close()
                self._kept = None
            if answer.status or fresh:
                break
        return answer

    def raw(self, sent: bytes) -> Answer:
        """All that comes back for some bytes, over a connection of their own."""
        with self.connected() as wire:
            try:
                wire.sendall(sent)
                wire.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            found = _to_the_end(wire)
        head, _, content = found.partition(b"\r\n\r\n")
        return Answer(head[9:12].decode("latin-1"), content)

    def call(self, method: str, message: bytes) -> Answer:
        """The answer to a message of gRPC, or its code."""
        call = self.channel.unary_unary(f"/{SERVICE}/{method}")
        try:
            return Answer("OK", call(message, timeout=SECONDS))
        except grpc.RpcError as problem:
            return Answer(problem.code().name, problem.details())

    def stream(self, sent: list[bytes]) -> Answer:
        """The answers of a stream of gRPC."""
        call = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        try:
            return Answer("OK", list(call(iter(sent), timeout=SECONDS)))
        except grpc.RpcError as problem:
            return Answer(problem.code().name, problem.details())

    def frames(self, sent: bytes) -> Answer:
        """What comes back for frames over a WebSocket, until it is closed."""
        with self.connected() as wire:
            wire.sendall(_UPGRADE)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                piece = wire.recv(1)
                if not piece:
                    return Answer("", head)
                head += piece
            try:
                wire.sendall(sent + frame(8, b"\x03\xe8"))
                wire.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            content = _to_the_end(wire)
        return Answer("500" if b'"status":500' in content.replace(b" ", b"") else "101", content)


_UPGRADE = (
    b"GET /v2/models/net/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def _to_the_end(wire: socket.socket) -> bytes:
    found = b""
    try:
        while piece := wire.recv(1 << 16):
            found += piece
    except ConnectionError:
        pass
    return found


def _answer(wire: socket.socket) -> tuple[Answer, bool]:
    """One answer of HTTP, and whether the connection ends with it."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = wire.recv(1 << 16)
        if not piece:
            return Answer("", found), True
        found += piece
    head, _, content = found.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(content) < int(fields.get(b"content-length", 0)):
        content += wire.recv(1 << 16)
    return Answer(head[9:12].decode(), content), fields.get(b"connection") == b"close"


def frame(opcode: int, payload: bytes, first: int = 0x80) -> bytes:
    """A frame of a client."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    masked = bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))
    return bytes([first | opcode]) + length + MASK + masked
