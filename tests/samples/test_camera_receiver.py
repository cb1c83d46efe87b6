"""The receiver of alerts on loopback: slow clients neither collect threads nor keep others out."""

from __future__ import annotations

import http.client
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "samples" / "camera"))
from live import receiver as of_receiver  # noqa: E402
from live.receiver import CONNECTIONS, Receiver  # noqa: E402


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    found = Receiver(tmp_path)
    yield found
    found.close()


def connected(receiver: Receiver) -> socket.socket:
    port = int(receiver.url.rpartition(":")[2].partition("/")[0])
    return socket.create_connection(("127.0.0.1", port), 10)


def sent(receiver: Receiver, key: str, body: bytes) -> int:
    host = receiver.url.partition("//")[2].partition("/")[0]
    wire = http.client.HTTPConnection(host, timeout=60)
    wire.request("POST", "/alerts", body, {**receiver.headers, "Idempotency-Key": key})
    with wire.getresponse() as reply:
        wire.close()
        return reply.status


def test_slow_heads_make_room_for_others(receiver: Receiver, tmp_path: Path) -> None:
    before = threading.active_count()
    with ExitStack() as slow:
        for number in range(3 * CONNECTIONS):
            wire = slow.enter_context(connected(receiver))
            wire.sendall(b"POST /alerts HTTP/1.1\r\nX: ")
            assert sent(receiver, f"k{number}", b"{}") == 201
        time.sleep(0.2)  # threads of ended connections
        assert threading.active_count() - before <= 2 * CONNECTIONS, "each has a thread and a timer"
    assert len(list(tmp_path.iterdir())) == 3 * CONNECTIONS


def test_a_head_that_drips_has_a_time_limit(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_receiver, "REQUEST_S", 0.5)
    with connected(receiver) as wire:
        wire.sendall(b"POST /alerts HTTP/1.1\r\nX: ")
        wire.settimeout(0.05)
        for _ in range(200):
            with suppress(TimeoutError):
                wire.sendall(b"a")
                if not wire.recv(100):
                    return
    pytest.fail("it was not closed")


def test_a_row_that_ends_early_is_not_written(receiver: Receiver, tmp_path: Path) -> None:
    with connected(receiver) as wire:
        token = receiver.headers["Authorization"]
        head = f"POST /alerts HTTP/1.1\r\nAuthorization: {token}\r\nIdempotency-Key: k\r\n"
        wire.sendall(head.encode() + b"Content-Length: 10\r\n\r\nhalf")
        wire.shutdown(socket.SHUT_WR)
        assert wire.recv(100).startswith(b"HTTP/1.1 400 ")
    assert list(tmp_path.iterdir()) == []
