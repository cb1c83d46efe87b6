"""What a client without a token may do to others: frames by hand against a real server on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve.service import Access
from tests.fixtures.threads import until

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve import grpc_server  # noqa: E402
from tests.fixtures.grpc_servers import Grpc, M, asked, running  # noqa: E402
from tests.fixtures.http2_frames import (  # noqa: E402
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RESET,
    SETTINGS,
    block,
    call_fields,
    connected,
    frame,
    message,
    settings,
)

pytestmark = pytest.mark.needs_ort
GOOD = (("authorization", "Bearer " + "t" * 20),)
LIVE = block(call_fields("ServerLive"))


@pytest.fixture
def server(bundle: Path) -> Iterator[Grpc]:
    with running({("net", "1"): bundle}, access=Access("t" * 20, loopback=False)) as client:
        assert infers(client)
        yield client
        assert infers(client)


def infers(client: Grpc) -> bool:
    return bool(client.call("ModelInfer", asked(), metadata=GOOD).id == "7")


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_a_path_that_is_not_utf_8(server: Grpc) -> None:
    """One such call ended ``grpc.aio`` of 1.84 and 1.85."""
    for path in (b"/\xff", b"/inference.GRPCInferenceService/\xff", b"\xff", b"*", b"/" + b"a" * 4000):
        with connected(server.port) as wire:
            wire.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(call_fields("", path=path))))
            assert wire.recv(1 << 16)
        assert infers(server)


def test_calls_whose_client_never_reads_hold_no_place(server: Grpc) -> None:
    with connected(server.port, settings(window=0)) as one, connected(server.port, settings(window=0)) as two:
        for number in range(1, 2 * grpc_server.CONNECTION_CALLS, 2):
            for wire in (one, two):
                wire.sendall(frame(HEADERS, END_HEADERS, number, LIVE))
                wire.sendall(frame(DATA, END_STREAM, number, message()))
        assert infers(server)


def test_a_stream_whose_client_never_reads(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread waits for the client's window, for as long as a message may take."""
    monkeypatch.setattr(grpc_server, "MESSAGE_SECONDS", 0.3)
    with running({("net", "1"): bundle}) as client:
        memory, request = client.server.app.memory, message(asked().SerializeToString())
        with connected(client.port, settings(window=0)) as wire:
            wire.sendall(frame(HEADERS, END_HEADERS, 1, block(call_fields("ModelStreamInfer"))))
            until(lambda: memory.held_bytes > 0)
            wire.sendall(frame(DATA, 0, 1, request))
            received = b""
            wire.sendall(frame(SETTINGS, 1, 0))  # else the connection ends by itself
            while frame(RESET, 0, 1, bytes(4))[:9] not in received:
                piece = wire.recv(1 << 16)
                assert piece
                received += piece
            until(lambda: not memory.held_bytes)
        assert client.call("ModelInfer", asked()).id == "7"


def test_messages_that_strangers_send_are_not_collected(server: Grpc) -> None:
    """64 calls of 4 MB, each less a byte, would be 256 MB."""
    begun_kb, fields = resident_kb(), block(call_fields("ServerLive"))
    refused = block(call_fields("ModelInfer"))
    wires = [connected(server.port, settings(window=0)) for _ in range(2)]
    for wire in wires:
        for number in range(1, 64, 2):
            wire.sendall(frame(HEADERS, END_HEADERS, number, refused if number % 4 == 1 else fields))
        wire.settimeout(0.2)
        try:
            for number in range(1, 64, 2):
                wire.sendall(frame(DATA, 0, number, b"\0\0\x3f\xff\xff" + bytes(8000)))
                wire.sendall(frame(DATA, 0, number, bytes(16000)) * 2)
        except OSError:  # the server reads no more
            pass
    assert infers(server)
    assert server.server.app.memory.peak_bytes < 30 << 20  # of the good calls alone
    assert resident_kb() - begun_kb < 100 << 10
    for wire in wires:
        wire.close()


def test_connections_have_a_limit_of_their_own(bundle: Path) -> None:
    """Further ones are closed, and HTTP is not concerned."""
    with running({("net", "1"): bundle}, connections=4) as client:
        assert client.call("ServerLive", M["ServerLiveRequest"]()).live
        wires = [connected(client.port, settings() + frame(SETTINGS, 1, 0)) for _ in range(12)]

        def closed(wire: Any) -> bool:
            wire.setblocking(False)
            try:
                while got := wire.recv(1 << 16):
                    assert got
            except BlockingIOError:
                return False
            except ConnectionError:
                pass
            return True

        for _ in range(1000):
            if sum(map(closed, wires)) >= 8:
                break
            time.sleep(0.005)
        else:
            pytest.fail("more connections are open than there may be")
        assert client.server.get("/v2/health/live")[0] == 200
        assert client.call("ServerLive", M["ServerLiveRequest"]()).live  # over the connection that it has
        for wire in wires:
            wire.close()


def test_a_head_without_end(server: Grpc) -> None:
    with connected(server.port) as wire:
        part = b"\0" + b"\x01x" + b"\x7f\x80\x7f" + b"a" * 16000
        try:
            wire.sendall(frame(HEADERS, 0, 1, part))
            for _ in range(400):
                wire.sendall(frame(CONTINUATION, 0, 1, part))
        except OSError:
            pass
        assert infers(server)


FLOOD = """
import sys
from pathlib import Path
import edgekit.serve.grpc_server  # as the server does, before any other import of grpcio
from tests.fixtures.grpc_servers import running
from tests.fixtures.http2_frames import *
with running({("net", "1"): Path(sys.argv[1])}) as client:
    print("begun", file=sys.stderr, flush=True)
    odd = (b"X-Upper", b"1"), (b"x-bin", b"!!!"), (b"grpc-timeout", b"1X")
    bad, gzip = (block(call_fields("ServerLive", *more)) for more in (odd, [(b"grpc-encoding", b"gzip")]))
    live = block(call_fields("ServerLive"))
    for number in range(100):
        with connected(client.port) as wire:
            wire.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, bad))
            wire.sendall(frame(HEADERS, END_HEADERS, 3, live) + frame(DATA, END_STREAM, 3, message()))
            wire.sendall(frame(HEADERS, END_HEADERS, 5, gzip))
            wire.sendall(frame(DATA, END_STREAM, 5, b"\\1\\0\\0\\0\\1x") + frame(GOAWAY, 0, 0, bytes(8)))
            if number % 2:
                wire.recv(65536)
"""


def test_clients_do_not_write_the_log(bundle: Path) -> None:
    """Malformed headers, and connections that end right after their call."""
    environment = {key: value for key, value in os.environ.items() if key != "GRPC_VERBOSITY"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run(
        [sys.executable, "-c", FLOOD, str(bundle)], env=environment, capture_output=True, timeout=120
    )
    assert (ran.returncode, ran.stderr.decode().strip()) == (0, "begun")
