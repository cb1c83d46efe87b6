"""Requests for inference over HTTP: what runs in the event loop, and what beside it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.classifiers import vectors
from tests.fixtures.servers import running

infer_path = pytest.importorskip("edgekit.serve.infer_path", reason="Starlette is not installed")
pytestmark = pytest.mark.needs_ort
TENSOR = {"name": "x", "shape": [1, 3, 1, 2], "datatype": "FP32", "data": vectors(1)[0]["x"].ravel().tolist()}
ASK = json.dumps({"inputs": [TENSOR]}).encode()


def test_long_answers_in_json_are_written_beside_the_event_loop(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running({("net", "1"): bundle}) as server:
        model = server.models.find("net", None)
        threads, written = [], model.answer

        def answer(*args: Any) -> Any:
            threads.append(threading.current_thread().name)
            return written(*args)

        monkeypatch.setattr(model, "answer", answer)
        body = server.ask("POST", "/v2/models/net/infer", ASK)[2]
        monkeypatch.setattr(infer_path, "JSON_VALUES", 5)  # the model's output has 6
        assert server.ask("POST", "/v2/models/net/infer", ASK)[2] == body
    assert threads[0] != threads[1]
