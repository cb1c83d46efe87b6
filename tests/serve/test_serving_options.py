"""Where a server listens, with which token, and what it needs."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from edgekit.errors import MissingDependency, UsageError
from edgekit.serve.server import Address, _listening, address_of, need_packages, token_for


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
    with pytest.raises(UsageError, match="holds no token"):
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
