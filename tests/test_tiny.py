"""The whole path in under a minute: a model on three engines, an array, a photograph, a server, a token.

``make tiny`` runs this file alone, while the rest of the suite is for what each part promises.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.generate.device.text_session import TextSession
from edgekit.processing.card import parse_card
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.chat_bundles import chat_bundle
from tests.fixtures.networks import scores, write
from tests.fixtures.servers import running

OUTPUT = "matmul3"
SIDE, CLASSES = 32, 5
CARD = {
    "title": "a classifier",
    "inputs": {
        "image": {
            "kind": "image", "layout": "NCHW", "colour": "RGB", "resize": "stretch",
            "shape": [1, 3, SIDE, SIDE], "mean": [127.5] * 3, "std": [63.75] * 3,
        }
    },
    "task": {"kind": "classify", "decode": "logits", "outputs": {"scores": OUTPUT}, "top": 2},
}  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = write(tmp_path_factory.mktemp("tiny"), (1, 3, SIDE, SIDE), scores(CLASSES, softmax=False))
    path = model.with_suffix(".edgekit")
    edgekit.build(model, targets=["ort", "openvino", "tflite"], card=parse_card(CARD)).save(path)
    return path


def image(seed: int) -> Array:
    return np.random.default_rng(seed).normal(0, 1, (1, 3, SIDE, SIDE)).astype(np.float32)


@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.needs_tflite
def test_a_model_on_three_engines_takes_an_array_and_a_photograph(bundle: Path) -> None:
    photograph = np.random.default_rng(1).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    outputs, labels = {}, {}
    for engine in ("ort", "openvino", "tflite"):
        with Session(bundle, engine=engine) as session:
            outputs[engine] = session.run({"image": image(0)})[OUTPUT]
            labels[engine] = session.predict(photograph)[0].label
            assert session.active.variant == f"{engine}-fp32"
            assert list(session.fallbacks) == []
    for engine, values in outputs.items():
        np.testing.assert_allclose(values, outputs["ort"], rtol=1e-4, atol=1e-5, err_msg=engine)
    assert len(set(labels.values())) == 1


@pytest.mark.needs_ort
def test_a_server_responds_with_the_outputs_of_a_session(bundle: Path) -> None:
    with Session(bundle, engine="ort") as session:
        expected = session.run({"image": image(2)})[OUTPUT]
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 3, SIDE, SIDE]}
    body = json.dumps({"inputs": [{**tensor, "data": image(2).ravel().tolist()}]})
    with running({("tiny", "1"): bundle}) as server:
        status, _, content = server.ask("POST", "/v2/models/tiny/infer", body)
    assert status == 200, content
    values = json.loads(content)["outputs"][0]["data"]
    np.testing.assert_allclose(values, expected.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.needs_ort
@pytest.mark.needs_tokenizers
def test_a_language_model_writes_tokens(tmp_path: Path) -> None:
    with TextSession(chat_bundle(tmp_path / "chat.edgekit")) as session:
        stream = session.generate("one two", max_tokens=4, temperature=0.0)
        assert "".join(stream) == stream.result.text
        assert (stream.result.tokens, stream.result.reason) == (4, "length")
