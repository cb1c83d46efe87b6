"""Limits of OpenAI's endpoints: places, deadlines, tokens of access, sizes, and the end of a model."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgekit
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.encoder import encoder, encoder_card
from tests.fixtures.servers import Running

pytestmark = [
    pytest.mark.needs_ort, pytest.mark.needs_tokenizers, pytest.mark.needs_templates,
    pytest.mark.needs_llguidance,
]  # fmt: skip
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
USER = [{"role": "user", "content": "hello"}]
TOKEN = {"Authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("limits")
    chat, vectors = chat_bundle(folder / "tiny.edgekit"), folder / "vectors.edgekit"
    shapes = {"ids": (1, 16), "mask": (1, 16)}
    model = encoder(folder / "e.onnx")
    edgekit.build(model, targets=["ort"], card=encoder_card(), shapes=shapes).save(vectors)
    return chat, vectors


@contextmanager
def serving(bundles: tuple[Path, Path]) -> Iterator[Running]:
    """A server of one conversation and one place to wait, which one address may fill."""
    from edgekit.serve.request_memory import RequestMemory
    from edgekit.serve.service import Access

    paths = {("tiny", "1"): (bundles[0],), ("vectors", "1"): (bundles[1],)}
    models = ServedModels(paths, ServeOptions(queue=1, conversations=1))
    server = Running(models, Access(token="secret"), memory=RequestMemory(256 << 20, 1.0))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def server(bundles: tuple[Path, Path]) -> Iterator[Running]:
    with serving(bundles) as found:
        yield found


def post(server: Running, path: str = CHAT, headers: Any = None, **body: Any) -> tuple[int, Any, Any]:
    if path == CHAT:
        body = {"model": "tiny", "messages": USER, "max_tokens": 4, **body}
    status, told, content = server.ask("POST", path, json.dumps(body), {**TOKEN, **(headers or {})})
    return status, told, json.loads(content)


def open_text(server: Running, buffer_bytes: int = 0) -> socket.socket:
    """Ask for a long streamed text, and do not read it."""
    wire = socket.socket()
    if buffer_bytes:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    wire.settimeout(30)
    wire.connect(("127.0.0.1", server.port))
    body = json.dumps({"model": "tiny", "messages": USER, "max_tokens": 1900, "stream": True, "seed": 1})
    head = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Length: {len(body)}"
    wire.sendall(f"{head}\r\n\r\n{body}".encode())
    return wire


def until(holds: Any, seconds: float = 20) -> bool:
    end_s = time.monotonic() + seconds
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.01)
    return bool(holds())


@contextmanager
def busy(model: Any) -> Iterator[None]:
    """Keep the model's only worker thread busy."""
    go = threading.Event()
    model._workers.submit(go.wait, 30)
    try:
        yield
    finally:
        go.set()


def test_a_full_queue_is_503_and_a_waiting_client_that_hangs_up_frees_its_place(server: Running) -> None:
    model: Any = server.models.served("tiny", None)
    with busy(model):
        wires = [open_text(server) for _ in range(2)]
        assert until(lambda: len(model._runs) == 2)
        status, headers, found = post(server)
        assert (status, headers["retry-after"], found["error"]["type"]) == (503, "1", "server_error")
        assert "2 texts of tiny run or wait" in found["error"]["message"]
        for wire in wires:
            wire.close()
        assert until(lambda: not model._runs, 5)  # before any worker is free
    assert post(server)[0] == 200


def test_a_text_that_does_not_begin_and_one_that_does_not_end_in_time(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = server.models.served("tiny", None)
    monkeypatch.setattr(model, "options", replace(model.options, text_deadline_ms=200))
    with busy(model):
        status, headers, found = post(server)
    assert (status, headers["retry-after"]) == (503, "1")
    assert "did not begin before its deadline" in found["error"]["message"]
    # The text of this seed ends by itself after 1,655 tokens. A second passes at each look at the clock.
    monkeypatch.setattr(model, "options", replace(model.options, text_deadline_ms=300_000))
    seconds = itertools.count(time.monotonic())
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("edgekit.generate.device.text_stream.time", clock)
    _, _, found = post(server, max_tokens=1900, seed=1)
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["completion_tokens"] < 1900


@pytest.mark.parametrize("path", ["chat/completions", "completions", "embeddings", "models", "models/tiny"])
def test_without_the_token_nothing_is_read(server: Running, path: str) -> None:
    method = "GET" if path.startswith("models") else "POST"
    status, _, content = server.ask(method, f"/v1/{path}", None if method == "GET" else "{bad")
    error = json.loads(content)["error"]
    assert (status, error["type"], error["code"]) == (401, "authentication_error", "invalid_api_key")


def test_a_compressed_body_is_refused(server: Running) -> None:
    status, _, found = post(server, headers={"Content-Encoding": "gzip"})
    assert status == 415
    assert "compressed" in found["error"]["message"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["good"] * 2049, "at most 2048 texts"),
        ([], "at most 2048 texts"),
        ("a" * (128 * 1024 + 1), "1 to 131072 characters"),
        ([[1, 2, 3]], "send texts instead of tokens"),
        ({"a": 1}, "at most 2048 texts"),
    ],
)
def test_inputs_of_embeddings_are_bounded(server: Running, given: Any, message: str) -> None:
    status, _, found = post(server, EMBEDDINGS, model="vectors", input=given)
    assert status == 400
    assert message in found["error"]["message"]


def test_vectors_of_a_response_hold_memory_of_the_budget(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    routes: Any = server.app.routes
    memory = next(route.app for route in routes if route.path == "/v1/{path:path}")._service.memory
    monkeypatch.setattr(memory, "peak_bytes", 0)
    assert post(server, EMBEDDINGS, model="vectors", input=["good"] * 40)[0] == 200
    assert memory.peak_bytes > 40 * 64 * 36
    assert until(lambda: memory.held_bytes == 0)
    monkeypatch.setattr(memory, "limit_bytes", 60_000)
    status, _, found = post(server, EMBEDDINGS, model="vectors", input=["good"] * 40)
    assert status == 413
    assert "memory" in found["error"]["message"]


def test_calls_of_earlier_answers_are_bounded_before_they_are_parsed(server: Running) -> None:
    def asked(arguments: str) -> Any:
        calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        messages = [*USER, {"role": "assistant", "tool_calls": calls}, *USER]
        body = json.dumps({"model": "tiny", "messages": messages, "max_tokens": 4})
        status, headers, content = server.ask("POST", CHAT, body.replace("7,", "7\\u002c"), TOKEN)
        return status, headers, json.loads(content)

    assert asked('{"a": [1]}')[0] == 200
    status, _, found = asked('{"a": [' + "7," * 300_000 + "1]}")
    assert status == 413
    status, _, found = asked('{"a": ' + "[" * 100 + "]" * 100 + "}")
    assert status == 400
    assert "deep" in found["error"]["message"]
    assert asked("[1]")[0] == 400


def test_a_client_that_does_not_read_takes_little_and_is_closed(
    bundles: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.serve.connection_watch.UNREAD_SECONDS", 2.0)
    with serving(bundles) as server:
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        model: Any = server.models.served("tiny", None)
        expected = post(server, temperature=0)[2]["choices"]
        wire = open_text(server, 8192)
        assert until(lambda: any(run._future.done() for run in model._runs))  # the text is there
        (run,) = model._runs
        slow = max(each.transport.get_write_buffer_size() for each in server.server.server_state.connections)
        assert 0 < slow < 80_000  # 64 KB of the event loop, and an event
        assert 0 < run._events.qsize() < 1900
        assert post(server, temperature=0)[2]["choices"] == expected
        assert list(model._runs) == [run]
        assert until(lambda: not model._runs)
        content = b""
        with suppress(ConnectionError):
            while part := wire.recv(65536):
                content += part
        assert content.startswith(b"HTTP/1.1 200")
        assert b"[DONE]" not in content
        wire.close()


def test_a_model_that_closes_ends_its_texts_and_threads(bundles: tuple[Path, Path]) -> None:
    with serving(bundles) as server:
        model: Any = server.models.served("tiny", None)
        wires = [open_text(server) for _ in range(2)]  # one runs, one waits
        assert until(lambda: len(model._runs) == 2)
        threads = list(model._workers._threads)
        model.close()
        assert not any(thread.is_alive() for thread in threads)
        for wire in wires:
            content = b""
            while b"the text was ended" not in content:
                part = wire.recv(65536)
                assert part, content[-300:]
                content += part
            wire.close()
        assert until(lambda: not model._runs)
        assert post(server)[0] == 503
