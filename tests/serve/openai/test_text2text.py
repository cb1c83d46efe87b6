"""Text-to-text models by OpenAI's endpoint for completions, and by arrays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.runtime import Session
from edgekit.serve.served_model import ServeOptions
from edgekit.serve.served_models import ServedModels
from tests.fixtures.servers import Running
from tests.fixtures.text2text_folders import SOURCES, write_text2text

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text2text")
    path = folder / "translate.edgekit"
    edgekit.build(write_text2text(folder / "bart", "bart"), targets=["ort"], context=64).save(path)
    return path


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[Running]:
    running = Running(ServedModels({("translate", "1"): (bundle,)}, ServeOptions(queue=8, conversations=4)))
    try:
        yield running
    finally:
        running.close()


def post(server: Running, path: str = "/v1/completions", **fields: Any) -> tuple[int, Any]:
    body = json.dumps({"model": "translate", **fields}).encode()
    status, headers, content = server.ask("POST", path, body, {"Content-Type": "application/json"})
    return status, json.loads(content) if headers["content-type"] == "application/json" else content.decode()


def test_completions_are_the_texts_of_a_session(server: Running, bundle: Path) -> None:
    with Session(bundle) as session:
        expected = {text: session.predict(text) for text in SOURCES}
    answers: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda text=text: answers.update({text: post(server, prompt=text)}))
        for text in SOURCES
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for text, written in expected.items():
        status, answer = answers[text]
        assert status == 200, answer
        (choice,) = answer["choices"]
        assert choice["text"] == written.text
        assert choice["finish_reason"] == written.reason
        tokens = len(written.tokens) + (written.reason == "stop")
        assert answer["usage"]["completion_tokens"] == tokens
        assert answer["usage"]["prompt_tokens"] == written.source_tokens


def test_a_streamed_text_is_the_same(server: Running) -> None:
    status, content = post(server, prompt=SOURCES[1], stream=True, max_tokens=30)
    events = [json.loads(line[6:]) for line in content.split("\n\n") if line.startswith("data: {")]
    pieces = [event["choices"][0]["text"] for event in events]
    assert status == 200
    assert len([piece for piece in pieces if piece]) > 1
    whole = post(server, prompt=SOURCES[1], max_tokens=30)[1]
    assert "".join(pieces) == whole["choices"][0]["text"]
    assert events[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "a", "temperature": 0.7}, "the model writes the likeliest text: leave temperature out"),
        ({"prompt": "a", "stop": "x"}, "unknown field 'stop'; leave it out"),
        ({"prompt": "a", "max_tokens": 64}, "max_tokens must be"),
        ({"prompt": ["a", "b"]}, "prompt must be one text"),
        ({"prompt": "b " * 80}, "the text has more than 64 tokens"),
    ],
)
def test_refusals(server: Running, fields: dict[str, Any], message: str) -> None:
    status, answer = post(server, **fields)
    assert status == 400, answer
    assert message in answer["error"]["message"]


def test_a_chat_is_refused_and_the_model_is_listed(server: Running) -> None:
    messages = [{"role": "user", "content": "a"}]
    status, answer = post(server, "/v1/chat/completions", messages=messages)
    assert (status, "use /v1/completions" in answer["error"]["message"]) == (400, True)
    listed = json.loads(server.ask("GET", "/v1/models", b"", {})[2])
    assert [model["id"] for model in listed["data"]] == ["translate"]
