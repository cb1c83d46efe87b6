"""Where a server listens, with which token, and what it needs."""

from __future__ import annotations

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import MissingDependency, UsageError
from edgekit.serve.serve_request import ServeRequest
from edgekit.serve.server import _listening, need_packages, serve, token_for
from edgekit.system.declared_options import declared, restored, stored_options
from edgekit.system.listen_address import Address, address_of

GIVEN = ServeRequest(
    ["net=a.edgekit", "b.edgekit"], listen=":0", grpc="[::1]:81", repository=Path("models"), memory_mb=5,
    workers=2, token_file=Path("t"), admin_token_file=Path("a"), tls_cert=Path("c"), tls_key=Path("k"),
    tls_clients=Path("ca"), deadline_ms=7.5, text_deadline_ms=9000, conversations=2, context=512,
    queue=3, connections=9, address_share=1.0,
    request_memory_mb=32, engine="ort", threads=2,
)  # fmt: skip


def test_a_worker_process_gets_every_option() -> None:
    unset = [each.name for each in declared(ServeRequest) if each.option.stored and not each.is_given(GIVEN)]
    assert unset == []
    assert restored(ServeRequest, json.loads(json.dumps(stored_options(GIVEN)))) == GIVEN


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deadline_ms": 0}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"deadline_ms": float("inf")}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"queue": 0}, "--deadline-ms must be above 0, and --queue at least 1"),
        ({"bundles": (), "repository": None}, "give bundles, or a folder of them (--repository)"),
        ({"memory_mb": 0}, "--memory-mb must be at least 1"),
        ({"connections": 7}, "--connections must be at least 8, and --address-share above 0 and at most 1"),
        ({"address_share": 0}, "--connections must be at least 8, and --address-share above 0 and at most 1"),
        ({"workers": 65}, "--workers is 65; it must be from 1 to 64"),
        ({"workers": 3}, "--request-memory-mb must be at least 16 for each worker"),
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
    assert token_for(Address(), None) is None
    assert len(token_for(Address("0.0.0.0", 80), None) or "") >= 32
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length\n")
    assert token_for(Address(), file) == "a-token-of-some-length"
    file.write_text("short")
    with pytest.raises(UsageError, match="does not hold a token"):
        token_for(Address(), file)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio sets TCP_NODELAY on connections of sockets that name TCP; without it an answer took 40 ms."""
    with _listening(Address(port=0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP
        with pytest.raises(UsageError, match="can't listen on 127"):
            _listening(Address(port=listening.getsockname()[1]))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingDependency, match="uvicorn is not installed, and serving bundles needs it"):
        need_packages()
