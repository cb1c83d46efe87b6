"""Where a server listens, with which token, and what it needs."""

from __future__ import annotations

import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import BundleError, MissingDependency, UsageError
from edgekit.serve.serve_request import ServeRequest
from edgekit.serve.server import USER_TIMEOUT_MS, _listening, need_packages, serve, token_for
from edgekit.system.listen_address import Address, address_of

GIVEN = ServeRequest(
    ["net=a.edgekit", "b.edgekit"], listen=":0", grpc="[::1]:81", repository=Path("models"), memory_mb=5,
    behind_proxy=True, token_file=Path("t"), admin_token_file=Path("a"), tls_cert=Path("c"),
    tls_key=Path("k"),
    tls_clients=Path("ca"), deadline_ms=7.5, text_deadline_ms=9000, conversations=2, context=512,
    queue=3, connections=9,
    request_memory_mb=32, engine="ort", threads=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadline_ms": 0}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"deadline_ms": float("inf")}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"queue": 0}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"bundles": (), "repository": None}, "give bundles, or a folder of them (--repository)"),
        ({"memory_mb": 0}, "--memory-mb must be at least 1"),
        ({"connections": 7}, "--connections must be at least 8"),
        ({"request_memory_mb": 15}, "--request-memory-mb must be at least 16"),
    ],
)
def test_options_out_of_their_range(given: dict[str, Any], said: str) -> None:
    GIVEN.check()
    with pytest.raises(UsageError) as error:
        replace(GIVEN, **given).check()
    assert str(error.value) == said
    with pytest.raises(UsageError, match="give bundles"):
        serve()


def test_addresses_and_tokens(tmp_path: Path) -> None:
    assert address_of(None) == Address("127.0.0.1", 8080)
    assert address_of("box") == Address("box", 8080)
    assert address_of("[::]:90") == Address("::", 90)
    for wrong in ("a:b", ":70000"):
        with pytest.raises(UsageError, match="it must be HOST:PORT"):
            address_of(wrong)
    assert token_for(True, None) is None
    assert len(token_for(False, None) or "") >= 32
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length\n")
    assert token_for(True, file) == "a-token-of-some-length"
    file.write_text("short")
    with pytest.raises(UsageError, match="does not hold a token"):
        token_for(True, file)


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"listen": "0.0.0.0:0"}, "--listen 0.0.0.0"),
        ({"listen": "[::]:0", "token_file": Path(__file__)}, "--listen [::]"),
        ({"grpc": "0.0.0.0:0"}, "--grpc 0.0.0.0"),
    ],
)
def test_other_machines_need_tls_or_a_proxy(
    given: dict[str, Any], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "token_file" in given:
        (tmp_path / "token").write_text("t" * 20)
        given = {**given, "token_file": tmp_path / "token"}
    with pytest.raises(UsageError) as error:
        serve(["missing.edgekit"], **given)
    assert str(error.value) == (
        f"{option} lets other machines in, so clients need a token and TLS: give --tls-cert and --tls-key, "
        "or --behind-proxy if a proxy has TLS (docs/serve-behind-nginx.md)"
    )
    with pytest.raises(BundleError, match="file not found"):
        serve(["missing.edgekit"], behind_proxy=True, **given)


def test_the_listening_socket() -> None:
    """asyncio sets TCP_NODELAY on connections of sockets that name TCP. Without it a response took 40 ms."""
    with _listening(Address(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
        if sys.platform == "linux":  # connections inherit it
            with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == USER_TIMEOUT_MS
        with pytest.raises(UsageError, match="can't listen on 127"):
            _listening(Address(port=listening.getsockname()[1]))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingDependency, match="uvicorn is not installed, and serving bundles needs it"):
        need_packages()
