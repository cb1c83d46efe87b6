"""A network camera for tests: RTSP (RFC 2326) with JPEG over RTP (RFC 2435), all in one TCP connection."""

from __future__ import annotations

import itertools
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np

SDP = b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=street\r\nt=0 0\r\nm=video 0 RTP/AVP 26\r\na=control:video\r\n"
HEADERS = {
    "OPTIONS": "Public: DESCRIBE, SETUP, PLAY, TEARDOWN\r\n",
    "DESCRIBE": f"Content-Type: application/sdp\r\nContent-Length: {len(SDP)}\r\n",
    "SETUP": "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 1\r\n",
    "PLAY": "Session: 1\r\n",
}
JPEG_TYPE, JPEG_420, TABLES_INSIDE, CLOCK_HZ, PART = 26, 1, 255, 90_000, 1400
RATE = 25.0


class RtspServer:
    """Serves pictures in a loop, to each client from its first one.

    Args:
        picture: Of a frame's number: uint8 [rows, columns, 3] in BGR, sides that 8 divides.
        port: 0: a free one.

    Attributes:
        stalled: While it is set, clients stay connected and get nothing.
    """

    def __init__(self, picture: Callable[[int], Any], port: int = 0) -> None:
        self.stalled = threading.Event()
        self._ended = threading.Event()
        outer = self

        class Client(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._serve(self.rfile, self.wfile, picture)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

        self._server = Server(("127.0.0.1", port), Client)
        self.port: int = self._server.server_address[1]
        self.url = f"rtsp://127.0.0.1:{self.port}/street"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Close every connection, and refuse new ones."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> RtspServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, asked: Any, answer: Any, picture: Callable[[int], Any]) -> None:
        while line := asked.readline().decode():
            method, number = line.split()[0], "0"
            while header := asked.readline().decode().strip():
                name, _, value = header.partition(":")
                number = value.strip() if name.lower() == "cseq" else number
            head = f"RTSP/1.0 200 OK\r\nCSeq: {number}\r\n{HEADERS.get(method, '')}\r\n"
            answer.write(head.encode() + (SDP if method == "DESCRIBE" else b""))
            if method == "PLAY":
                self._play(answer, picture)
                return

    def _play(self, answer: Any, picture: Callable[[int], Any]) -> None:
        sequence = itertools.count()
        for number in itertools.count():
            while self.stalled.is_set() and not self._ended.wait(0.05):
                pass
            if self._ended.is_set():
                return
            try:
                for last, part in packets(picture(number)):
                    mark = JPEG_TYPE | (128 if last else 0)
                    at = int(number * CLOCK_HZ / RATE) & 0xFFFFFFFF
                    packet = struct.pack(">BBHII", 128, mark, next(sequence) & 0xFFFF, at, 1) + part
                    answer.write(struct.pack(">cBH", b"$", 0, len(packet)) + packet)
            except OSError:  # the client has left
                return
            time.sleep(1 / RATE)


def packets(picture: Any) -> Iterator[tuple[bool, bytes]]:
    """The payloads of one picture, and whether each is its last (RFC 2435, section 3.1)."""
    content = cv2.imencode(".jpg", picture)[1].tobytes()
    tables, scan = b"", b""
    at = 2
    while not scan:
        marker, size = struct.unpack(">HH", content[at : at + 4])
        if marker == 0xFFDB:  # tables of quantization, each after a byte for its number
            body = content[at + 4 : at + 2 + size]
            tables += b"".join(body[i + 1 : i + 65] for i in range(0, len(body), 65))
        if marker == 0xFFDA:
            scan = content[at + 2 + size : -2]
        at += 2 + size
    rows, columns = np.asarray(picture).shape[:2]
    for start in range(0, len(scan), PART):
        head = struct.pack(">I", start) + bytes([JPEG_420, TABLES_INSIDE, columns // 8, rows // 8])
        if start == 0:
            head += struct.pack(">BBH", 0, 0, len(tables)) + tables
        yield start + PART >= len(scan), head + scan[start : start + PART]
