"""From when a request's time counts, and requests that go past Starlette's layers or through them."""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from tests.fixtures.classifiers import vectors
from tests.fixtures.servers import app_of, running

request_body = pytest.importorskip("edgekit.serve.request_memory")
pytestmark = pytest.mark.needs_ort
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()
INFER = "/v2/models/net/infer"


@pytest.fixture
def models(bundle: Path) -> Iterator[ServedModels]:
    found = ServedModels({("net", "1"): (bundle,)}, ServeOptions(threads=1, deadline_ms=60_000))
    yield found
    found.close()


def ask(app: Any, path: str = INFER, began_s: float | None = None) -> tuple[int, Any]:
    """What an app answers, without a server."""
    sent: list[Any] = []
    headers = [(b"host", b"127.0.0.1"), (b"content-length", str(len(ASK)).encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": headers}
    scope |= {"query_string": b"", **({} if began_s is None else {request_body.BEGAN: began_s})}

    async def receive() -> Any:
        return {"type": "http.request", "body": ASK, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(each["body"] for each in sent[1:]))


def test_the_time_counts_from_the_first_byte(models: ServedModels) -> None:
    app, net = app_of.make_app(models), models.find("net", None)
    assert ask(app)[0] == 200
    status, told = ask(app, began_s=time.monotonic() - 61)
    assert status == 503
    assert told["error"] == "not run: its deadline of 60000 ms passed while it was read"
    assert net.metrics.snapshot()["outcomes"] == {"ok": 1, "refused": 1}
    # An answer waits for the event loop as long as its request did: half of the time is not enough.
    assert ask(app, began_s=time.monotonic() - 31)[0] == 503


def test_a_body_that_comes_after_the_deadline(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = importlib.import_module("edgekit.serve.infer_path")
    waits, parameters, read_body = threading.Event(), {"timeout": 100_000}, paths.read_body

    async def read(*given: Any) -> Any:
        waits.set()
        return await read_body(*given)

    monkeypatch.setattr(paths, "read_body", read)
    with running({("net", "1"): bundle}, deadline_ms=60_000) as server:
        for more, status in (({"parameters": parameters}, b"503"), ({}, b"200")):
            body = json.dumps({"inputs": [TENSOR], **more}).encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as wire:
                head = f"POST {INFER} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
                wire.sendall(head.encode() + body[:10])
                assert waits.wait(60)  # else both parts may be read at once, by a busy machine
                waits.clear()
                time.sleep(0.2)
                wire.sendall(body[10:])
                assert wire.recv(4096).split()[1] == status


def test_behind_middleware(models: ServedModels) -> None:
    seen = []

    class Counted:
        def __init__(self, app: Any) -> None:
            self._app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await self._app(scope, receive, send)

    watched = app_of.make_app(models)
    watched.add_middleware(Counted)
    assert ask(watched)[0] == 200
    assert seen == [INFER]


def test_a_bug_is_told_and_logged(models: ServedModels, capfd: pytest.CaptureFixture[str]) -> None:
    def wrong(*_: Any) -> Any:
        raise ZeroDivisionError

    app = app_of.make_app(models)
    models.find("net", None).answer = wrong  # type: ignore[assignment]
    status, told = ask(app)
    assert (status, told["error"]) == (500, "the server failed because of a bug; its log has the traceback")
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_client_that_is_gone(models: ServedModels) -> None:
    app, sent = app_of.make_app(models), []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": INFER, "headers": [(b"host", b"localhost")]}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400


def test_the_server_says_when_a_request_began(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = pytest.importorskip("edgekit.serve.http_protocol", reason="httptools is not installed")
    paths = importlib.import_module("edgekit.serve.infer_path")
    seen: list[float] = []

    def began_s(scope: Any) -> float:
        seen.append(scope[request_body.BEGAN])
        return float(scope[request_body.BEGAN])

    monkeypatch.setattr(paths, "began_s", began_s)
    assert protocol.BEGAN == request_body.BEGAN
    before_s = time.monotonic()
    with running({("net", "1"): bundle}) as server:
        assert server.ask("POST", INFER, ASK)[0] == 200
    assert before_s - 0.1 <= seen[-1] <= time.monotonic()
