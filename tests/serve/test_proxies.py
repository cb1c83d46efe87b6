"""The proxies' files of samples/platforms with real proxies, if they are installed."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve.service import Access
from tests.fixtures.certificates import certificate, saved
from tests.fixtures.http2_frames import END_HEADERS, END_STREAM, HEADERS, block, call_fields, connected, frame
from tests.fixtures.proxies import free_port, program, proxied

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve.grpc_messages import SERVICE  # noqa: E402
from tests.fixtures.grpc_servers import M, asked, running  # noqa: E402
from tests.fixtures.servers import running as http_running  # noqa: E402

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_proxies]
GOOD = (("authorization", "Bearer " + "t" * 20),)
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": [0.5] * 6}
ASK = json.dumps({"inputs": [TENSOR]}).encode()
OWN = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if program(name) is None:
        pytest.skip(f"{name} is not installed (tests/serve/setup)")
    return name


@pytest.fixture
def client(bundle: Path) -> Iterator[Any]:
    access = Access("t" * 20, loopback=False)
    with running({("net", "1"): bundle}, access=access, address_share=1.0) as own:
        yield own


def code_of(call: Any, message: bytes, metadata: Any = ()) -> str:
    try:
        call(message, timeout=30, metadata=metadata)
    except grpc.RpcError as problem:
        return str(problem.code().name)
    return "OK"


def test_good_and_bad_calls_by_tls(proxy: str, client: Any, tmp_path: Path) -> None:
    authority = certificate("authority")
    cert, key = saved(tmp_path, "server", certificate("server", authority))
    root, _ = saved(tmp_path, "authority", authority)
    (tmp_path / "cert.pem").write_bytes(cert.read_bytes())
    (tmp_path / "key.pem").write_bytes(key.read_bytes())
    (tmp_path / "both.pem").write_bytes(cert.read_bytes() + key.read_bytes())
    message, credentials = asked().SerializeToString(), grpc.ssl_channel_credentials(root.read_bytes())
    with (
        proxied(proxy, client.port, tmp_path) as (port, _),
        grpc.secure_channel(f"127.0.0.1:{port}", credentials, OWN) as channel,
    ):
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        assert M["ModelInferResponse"].FromString(infer(message, timeout=30, metadata=GOOD)).id == "7"
        assert code_of(infer, message) == "UNAUTHENTICATED"
        assert code_of(infer, b"\xff", GOOD) == "INVALID_ARGUMENT"
        assert code_of(channel.unary_unary("/other.Service/Call"), b"") == "UNIMPLEMENTED"
        stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        assert len(list(stream(iter([message] * 3), timeout=30, metadata=GOOD))) == 3


def test_calls_and_connections_of_an_address_are_bounded(proxy: str, client: Any, tmp_path: Path) -> None:
    """Other addresses hold the calls that they may, and send bad paths; good calls go through."""
    bad = [block(call_fields("", path=path)) for path in (b"/\xff", f"/{SERVICE}/".encode() + b"\xff", b"*")]
    message = asked().SerializeToString()
    with (
        proxied(proxy, client.port, tmp_path, tls=False) as (port, _),
        grpc.insecure_channel(f"127.0.0.1:{port}", OWN) as channel,
    ):
        wires = []
        for number in range(100):
            with suppress(OSError):  # HAProxy closes what an address opens beyond 32, even within connect()
                wires.append(connected(port, source=f"127.0.0.{2 + number % 2}"))
        assert len(wires) >= 64
        open_call = block(call_fields("ModelInfer", (b"authorization", b"Bearer " + b"t" * 20)))
        for number, wire in enumerate(wires):
            with suppress(OSError):
                for stream in range(1, 17, 2):
                    wire.sendall(frame(HEADERS, END_HEADERS, stream, open_call))
                wire.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 17, bad[number % 3]))
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        if proxy == "nginx":  # HAProxy lets the slow calls of an address through: they end after 5 s
            assert [code_of(infer, message, GOOD) for _ in range(20)] == ["OK"] * 20
        live = channel.unary_unary(f"/{SERVICE}/ServerLive")
        assert [code_of(live, b"") for _ in range(20)] == ["OK"] * 20
        for wire in wires:
            wire.close()
    assert client.call("ModelInfer", asked(), metadata=GOOD).id == "7"


@pytest.fixture
def nginx() -> str:
    if program("nginx") is None:
        pytest.skip("nginx is not installed (tests/serve/setup)")
    return "nginx-http"


def test_http_behind_nginx(nginx: str, bundle: Path, tmp_path: Path) -> None:
    authority = certificate("authority")
    for name, file in zip(
        ("cert.pem", "key.pem"), saved(tmp_path, "server", certificate("server", authority)), strict=True
    ):
        (tmp_path / name).write_bytes(file.read_bytes())
    root, _ = saved(tmp_path, "authority", authority)
    context = ssl.create_default_context(cafile=str(root))
    access = Access("t" * 20, loopback=False)
    with (
        http_running({("net", "1"): bundle}, access=access) as server,
        proxied(nginx, server.port, tmp_path) as (port, _),
    ):

        def ask(path: str, body: bytes | None = None, token: str = "t" * 20) -> int:
            wire = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
            headers = {"Authorization": f"Bearer {token}"}
            wire.request("GET" if body is None else "POST", path, body, headers)
            status = wire.getresponse().status
            wire.close()
            return status

        assert ask("/v2/health/live", token="") == 200
        assert ask("/v2/models/net/infer", ASK) == 200
        assert ask("/v2/models/net/infer", ASK, "wrong") == 401
        assert ask("/v2/models/net/infer", bytes(33 << 20)) == 413
        with http_stream(port, context) as wire:
            assert wire.recv(4096).startswith(b"HTTP/1.1 101")
            wire.sendall(b"\x82\x81\0\0\0\0x")
            assert b'"status":400' in wire.recv(4096)


def http_stream(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), 30)
    wire = context.wrap_socket(plain, server_hostname="127.0.0.1")
    wire.sendall(
        b"GET /v2/models/net/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Authorization: Bearer " + b"t" * 20 + b"\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    return wire


def test_servers_are_restarted_one_by_one_without_a_lost_request(
    nginx: str, bundle: Path, tmp_path: Path
) -> None:
    """The servers of the page's section on several servers, restarted one by one."""
    token = tmp_path / "token"
    token.write_text("t" * 20)
    ports = [free_port(), free_port()]
    command = "from edgekit.cli import main; main()"

    def start(port: int) -> subprocess.Popen[bytes]:
        line = [
            "serve",
            f"net={bundle}",
            "--port",
            str(port),
            "--token-file",
            str(token),
            "--behind-proxy",
            "--json",
        ]
        process = subprocess.Popen([sys.executable, "-c", command, *line], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline()  # it listens, and its models are loaded
        return process

    servers = [start(port) for port in ports]
    statuses: list[object] = []
    ends = threading.Event()

    def client(port: int) -> None:
        wire = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not ends.is_set():
            try:
                wire.request("POST", "/v2/models/net/infer", ASK, {"Authorization": "Bearer " + "t" * 20})
                reply = wire.getresponse()
                reply.read()
                statuses.append(reply.status)
            except (OSError, http.client.HTTPException) as problem:
                statuses.append(type(problem).__name__)
                wire.close()
            time.sleep(0.03)  # below nginx's limit of an address
        wire.close()

    try:
        with proxied(nginx, ports[0], tmp_path, tls=False, others=ports[1:]) as (port, _):
            clients = [threading.Thread(target=client, args=(port,)) for _ in range(4)]
            for thread in clients:
                thread.start()
            for number in (0, 1, 0, 1):
                servers[number].send_signal(signal.SIGTERM)
                assert servers[number].wait(60) == 0
                servers[number] = start(ports[number])
            ends.set()
            for thread in clients:
                thread.join()
    finally:
        ends.set()
        for server in servers:
            server.kill()
            server.wait()
    assert set(statuses) == {200}
    assert len(statuses) > 100
