"""The files of docs/grpc-proxy.md with the real nginx and HAProxy, where they are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve.service import Access
from tests.fixtures.certificates import certificate, saved
from tests.fixtures.grpc_proxies import program, proxied
from tests.fixtures.http2_frames import END_HEADERS, END_STREAM, HEADERS, block, call_fields, connected, frame

grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
from edgekit.serve.grpc_messages import SERVICE  # noqa: E402
from tests.fixtures.grpc_servers import M, asked, running  # noqa: E402

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_proxies]
GOOD = (("authorization", "Bearer " + "t" * 20),)
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
