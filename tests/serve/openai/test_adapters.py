"""LoRA adapters behind OpenAI's endpoints: a model's name selects one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import edgekit
from edgekit.generate import TextSession
from edgekit.generate.host.readers.language.open_model import open_language_model
from tests.fixtures.adapter_files import random_pairs, write_peft
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.servers import Running, running

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers, pytest.mark.needs_templates]
PROMPT = "the of and to in"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    path = write_tiny(folder / "tiny.gguf")
    adapter = write_peft(folder / "pirate", random_pairs(open_language_model(path), spread=0.3))
    edgekit.build(path, targets=["ort"], adapters={"pirate": adapter}).save(folder / "chat.edgekit")
    return folder / "chat.edgekit"


@pytest.fixture(scope="module")
def server(chat: Path) -> Iterator[Running]:
    with running({("chat", "1"): chat}, queue=16) as found:
        yield found


def post(server: Running, model: str) -> tuple[int, str]:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    status, _, content = server.ask("POST", "/v1/completions", json.dumps(body))
    answer = json.loads(content)
    return status, answer["choices"][0]["text"] if status == 200 else answer["error"]["message"]


def test_models_lists_the_adapters(server: Running) -> None:
    assert [model["id"] for model in server.get("/v1/models")[1]["data"]] == ["chat", "chat:pirate"]
    assert server.get("/v1/models/chat:pirate")[1]["id"] == "chat:pirate"
    assert server.get("/v1/models/chat:other")[0] == 404


def test_the_model_of_a_request_selects_the_adapter(server: Running, chat: Path) -> None:
    with TextSession(chat) as session:
        texts = {
            model: session.generate(PROMPT, max_tokens=12, adapter=adapter).text()
            for model, adapter in (
                ("chat", ""),
                ("chat:1", ""),
                ("chat:pirate", "pirate"),
                ("chat:1:pirate", "pirate"),
            )
        }
    assert texts["chat"] != texts["chat:pirate"]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda model: post(server, model), [*texts, *texts]))
    assert answers == [(200, text) for text in [*texts.values(), *texts.values()]]


@pytest.mark.parametrize("model", ["chat:other", "chat:1:other"])
def test_other_adapters_are_not_found(server: Running, model: str) -> None:
    assert post(server, model) == (404, "chat has no adapter 'other'; available: pirate")
