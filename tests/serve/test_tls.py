"""TLS of both protocols, with and without certificates of clients."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from edgekit.errors import UsageError
from edgekit.serve.connection_watch import ConnectionLimits
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.server import token_for
from edgekit.serve.tls import Tls, tls_of
from tests.fixtures.servers import Running
from tests.fixtures.threads import until

pytest.importorskip("cryptography.x509", reason="cryptography is not installed (the extra trust)")
from tests.fixtures.certificates import certificate, saved


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tls")
    authority, found = certificate("authority"), {}
    for name, pair in (
        ("authority", authority),
        ("server", certificate("server", authority)),
        ("client", certificate("client", authority)),
    ):
        found[name], found[f"{name}-key"] = saved(folder, name, pair)
    return found


def ready(url: str, context: ssl.SSLContext) -> int:
    with urllib.request.urlopen(f"{url}/v2/health/ready", timeout=30, context=context) as reply:
        return int(reply.status)


@pytest.mark.needs_ort
def test_https_and_clients_with_a_certificate(files: dict[str, Path], bundle: Path) -> None:
    tls = tls_of(files["server"], files["server-key"], files["authority"])
    models = ServedModels({("net", "1"): (bundle,)}, ServeOptions())
    server = Running(models, tls=tls)
    try:
        url = f"https://127.0.0.1:{server.port}"
        context = ssl.create_default_context(cafile=str(files["authority"]))
        with pytest.raises((URLError, ssl.SSLError, ConnectionError)):  # no certificate
            ready(url, context)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):  # of an authority it does not know
            ready(url, ssl.create_default_context())
        context.load_cert_chain(files["client"], files["client-key"])
        assert ready(url, context) == 200
    finally:
        server.close()


def test_handshakes_that_never_end_and_plain_bytes(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.serve.tls.HANDSHAKE_SECONDS", 0.5)
    tls = tls_of(files["server"], files["server-key"], None)
    server = Running(ServedModels({}, ServeOptions()), tls=tls)
    try:
        context = ssl.create_default_context(cafile=str(files["authority"]))
        assert ready(f"https://127.0.0.1:{server.port}", context) == 200  # it has started
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET /v2 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
                wire.sendall(sent)
                try:
                    received = wire.recv(4096)
                except ConnectionResetError:
                    received = b""
                assert not received.startswith(b"HTTP")  # at most an alert
        assert ready(f"https://127.0.0.1:{server.port}", context) == 200
    finally:
        server.close()


def test_handshakes_count_as_connections(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From accept on: those of one address make room for each other, and leave files to others."""
    monkeypatch.setattr("edgekit.serve.tls.HANDSHAKE_SECONDS", 100.0)
    tls = tls_of(files["server"], files["server-key"], None)
    limits = ConnectionLimits(total=8, address=4)
    server = Running(ServedModels({}, ServeOptions()), tls=tls, connections=limits)
    try:
        context = ssl.create_default_context(cafile=str(files["authority"]))
        assert ready(f"https://127.0.0.1:{server.port}", context) == 200
        address = ("127.0.0.1", server.port)
        silent = [socket.create_connection(address, 10, ("127.0.0.2", 0)) for _ in range(12)]
        for wire in silent[:8]:
            with suppress(ConnectionResetError):
                assert wire.recv(1) == b""  # the oldest are closed at once, and not when their time is over
        assert ready(f"https://127.0.0.1:{server.port}", context) == 200
        for wire in silent:
            wire.close()
        until(lambda: not server.server.server_state.connections)
    finally:
        server.close()


def test_a_request_that_comes_with_the_end_of_the_handshake(files: dict[str, Path]) -> None:
    tls = tls_of(files["server"], files["server-key"], None)
    server = Running(ServedModels({}, ServeOptions()), tls=tls)
    try:
        context = ssl.create_default_context(cafile=str(files["authority"]))
        assert ready(f"https://127.0.0.1:{server.port}", context) == 200
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", server.port), 30) as wire:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    wire.sendall(sent.read())
                    received.write(wire.recv(1 << 16))
            client.write(b"GET /v2/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wire.sendall(sent.read())  # with the last bytes of the handshake
            answer = b""
            while b'{"live":true}' not in answer:
                received.write(wire.recv(1 << 16))
                with suppress(ssl.SSLWantReadError):  # several records may have come at once
                    while True:
                        answer += client.read(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200 OK")
    finally:
        server.close()


def test_grpc_by_tls(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed (the extra serve)")
    from contextlib import asynccontextmanager

    from edgekit.serve import grpc_server, grpc_service

    monkeypatch.setattr(grpc_server, "HANDSHAKE_SECONDS", 1)
    tls = tls_of(files["server"], files["server-key"], files["authority"])
    over_grpc = grpc_server.GrpcServer("127.0.0.1:0", 1 << 20, 8, 0.5, tls)

    @asynccontextmanager
    async def beside(service: Any) -> Any:
        grpc_service.start(over_grpc, service)
        yield
        await over_grpc.close(5)

    def ask(with_certificate: bool) -> Any:
        own = (files["client-key"].read_bytes(), files["client"].read_bytes()) if with_certificate else ()
        credentials = grpc.ssl_channel_credentials(files["authority"].read_bytes(), *own)
        with grpc.secure_channel(f"127.0.0.1:{over_grpc.port}", credentials) as channel:
            return channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=30)

    server = Running(ServedModels({}, ServeOptions()), companion=beside)
    try:
        with socket.create_connection(("127.0.0.1", over_grpc.port), timeout=30) as silent:
            assert ask(with_certificate=True) == b"\x08\x01"
            with pytest.raises(grpc.RpcError) as error:
                ask(with_certificate=False)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert silent.recv(1) == b""  # its handshake has a time limit
    finally:
        server.close()


def test_files_that_are_none(files: dict[str, Path], tmp_path: Path) -> None:
    assert tls_of(None, None, None) is None
    with pytest.raises(UsageError, match="TLS needs both --tls-cert and --tls-key"):
        tls_of(files["server"], None, None)
    with pytest.raises(UsageError, match="can't be used as a certificate and its key"):
        tls_of(files["server"], files["client-key"], None)
    with pytest.raises(UsageError, match="can't be used as a certificate and its key: No such file"):
        tls_of(tmp_path / "none", files["client-key"], None)
    with pytest.raises(UsageError, match="does not hold a certificate"):
        tls_of(files["server"], files["server-key"], files["client-key"])


def test_who_has_a_certificate_needs_no_token() -> None:
    assert token_for(False, None, Tls("c", "k")) is not None
    assert token_for(False, None, Tls("c", "k", "a")) is None
