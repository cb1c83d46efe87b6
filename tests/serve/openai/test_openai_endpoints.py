"""OpenAI's endpoints on real engines: responses, refusals, limits, and clients that hang up."""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.cli.serve_verb import model_lines
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.encoder import encoder, encoder_card
from tests.fixtures.servers import Running, running

pytestmark = [
    pytest.mark.needs_ort, pytest.mark.needs_tokenizers, pytest.mark.needs_templates,
    pytest.mark.needs_llguidance,
]  # fmt: skip
CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hello"}]
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
}
CITY["additionalProperties"] = False
TOOL = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("openai")
    chat, vectors = chat_bundle(folder / "tiny.edgekit"), folder / "vectors.edgekit"
    shapes = {"ids": (1, 16), "mask": (1, 16)}
    model = encoder(folder / "e.onnx")
    edgekit.build(model, targets=["ort"], card=encoder_card(), shapes=shapes).save(vectors)
    with running({("tiny", "1"): chat, ("vectors", "1"): vectors}, queue=4) as found:
        yield found


def post(server: Running, path: str = CHAT, **body: Any) -> tuple[int, dict[str, str], Any]:
    if path == CHAT:
        body = {"model": "tiny", "messages": USER, "max_tokens": 4, "temperature": 0, **body}
    status, headers, content = server.ask("POST", path, json.dumps(body))
    return status, headers, json.loads(content) if content[:1] == b"{" else content.decode()


def test_a_chat_whole_and_streamed_is_the_same_text(server: Running) -> None:
    assert [m["id"] for m in server.get("/v1/models")[1]["data"]] == ["tiny", "vectors"]
    status, _, whole = post(server)
    assert status == 200
    assert whole["usage"]["completion_tokens"] == 4
    _, _, text = post(server, stream=True, stream_options={"include_usage": True})
    assert text.endswith("data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in text.split("\n\n")[:-2]]
    parts = [e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]]
    assert "".join(parts) == whole["choices"][0]["message"]["content"]
    assert events[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]


def test_a_forced_call_follows_its_schema(server: Running) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    _, _, found = post(server, tools=[TOOL], tool_choice=choice, max_tokens=200)
    call = found["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "weather"
    assert json.loads(call["arguments"])["city"] in ("Rome", "Oslo")
    assert found["choices"][0]["finish_reason"] == "tool_calls"


def test_embeddings_as_floats_and_base64(server: Running) -> None:
    asked = {"model": "vectors", "input": ["good", "bad"]}
    _, _, floats = post(server, "/v1/embeddings", **asked)
    _, _, packed = post(server, "/v1/embeddings", **asked, encoding_format="base64")
    for one, other in zip(floats["data"], packed["data"], strict=True):
        raw = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        assert np.allclose(raw, one["embedding"])
        assert raw.size == 64
    assert post(server, "/v1/embeddings", **asked, dimensions=32)[0] == 400


def test_without_the_tokenizers_a_server_says_so_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, model = tmp_path / "vectors.edgekit", encoder(tmp_path / "e.onnx")
    shapes = {"ids": (1, 16), "mask": (1, 16)}
    edgekit.build(model, targets=["ort"], card=encoder_card(), shapes=shapes).save(vectors)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with running({("vectors", "1"): vectors}) as server:
        assert server.get("/v2/models/vectors/ready") == (503, {"name": "vectors", "ready": False})
        assert server.get("/v2/health/ready") == (503, {"ready": False})
        assert server.get("/v2/health/live")[0] == 200
        _, line = model_lines(server.models)
    assert line.startswith(
        "  not ready vectors 1  tokenizers is not installed, and a text needs it: pip install"
    )


SCHEMA = {
    "type": "object",
    "properties": {f"p{i}": {"enum": [f"v{i}{j}" for j in range(90)]} for i in range(900)},
}
BOMB = {"name": "bomb", "schema": SCHEMA}
PART = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"n": 2}, 400, "n is not supported; leave it out or send 1"),
        ({"logprobs": True}, 400, "logprobs is not supported"),
        ({"magic": 1}, 400, "unknown field 'magic'"),
        ({"stream_options": {}}, 400, "stream_options is an object, and needs stream: true"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, 400, "send false"),
        ({"stream": True, "stream_options": {"magic": 1}}, 400, "unknown field 'magic' in stream_options"),
        ({"model": "nope"}, 404, "there is no model 'nope'"),
        ({"model": "vectors"}, 400, "vectors is not a language model"),
        ({"messages": USER * 10_001}, 400, "there are 10001 messages"),
        ({"messages": [{"role": "user", "content": [PART] * 1025}]}, 400, "1024 texts"),
        ({"messages": [{"role": "user", "content": "a" * 100_000}]}, 400, "the context is 2048 tokens"),
        ({"stop": ["a"] * 17}, 400, "stop takes 16 texts"),
        ({"tools": [TOOL] * 129}, 400, "at most 128 functions"),
        ({"metadata": {str(i): "" for i in range(17)}}, 400, "metadata is an object of at most 16"),
        ({"response_format": {"type": "json_schema", "json_schema": BOMB}}, 400, "too complex; simplify it"),
        ({"stop": [0] * 200_001}, 413, "more than 200000 values"),
        ({"user": "a" * (9 << 20)}, 413, "larger than"),
    ],
)  # fmt: skip
def test_refusals_in_the_api_s_form(server: Running, body: Any, status: int, message: str) -> None:
    found = post(server, **body)
    assert found[0] == status
    assert message in found[2]["error"]["message"]
    assert set(found[2]["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("length", [5000, 100_000])  # counted as tokens, and refused before that
def test_a_prompt_beyond_the_context_has_the_api_s_code(server: Running, length: int) -> None:
    text = "ab " * (length // 3)
    asked: list[tuple[str, dict[str, Any]]] = [
        (CHAT, {"messages": [{"role": "user", "content": text}]}),
        ("/v1/completions", {"model": "tiny", "prompt": text}),
    ]
    for path, body in asked:
        status, _, found = post(server, path, **body)
        assert status == 400
        assert found["error"]["code"] == "context_length_exceeded"
        assert found["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(("depth", "message"), [(70, "more than 64 deep"), (100_000, "not valid JSON")])
def test_deep_json_is_refused(server: Running, depth: int, message: str) -> None:
    body = '{"model": "tiny", "messages": ' + "[" * depth + "]" * depth + "}"
    status, _, content = server.ask("POST", CHAT, body)
    assert status == 400
    assert message in json.loads(content)["error"]["message"]


def test_what_does_not_exist_yet(server: Running) -> None:
    status, _, found = post(server, "/v1/audio/speech")
    assert status == 404
    assert found["error"]["code"] == "unknown_url"
    assert server.ask("POST", "/v2/models/tiny/infer", "{}")[0] == 400


def test_a_client_that_hangs_up_ends_its_text_and_one_address_has_a_share(server: Running) -> None:
    model: Any = server.models.served("tiny", None)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "
    body = json.dumps({"model": "tiny", "messages": USER, "max_tokens": 1900, "stream": True, "seed": 1})
    wires = []
    for _ in range(4):
        wire = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        wire.sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
        wire.recv(256)
        wires.append(wire)
    status, headers, found = post(server)  # 4 of 8 places
    for wire in wires:
        wire.close()
    assert (status, found["error"]["code"], headers["retry-after"]) == (429, "rate_limit_exceeded", "1")
    end_s = time.monotonic() + 60
    while model._runs and time.monotonic() < end_s:
        time.sleep(0.01)
    assert model.metrics.snapshot()["outcomes"]["cancelled"] == 4
    assert post(server)[0] == 200
