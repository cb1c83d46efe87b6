"""Models in the folder that ``snapshot_download`` returns, opened in a child that may read nothing else."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.compiler.sandbox.limits import bounds_of, limits_of
from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.open_model import open_language_model
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.generate.host.readers.text2text.open_text2text import open_text2text_model
from tests.fixtures.adapter_files import random_pairs, write_peft
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hub_caches import as_snapshot
from tests.fixtures.hugging_face_files import write_folder
from tests.fixtures.moonshine_folders import write_moonshine
from tests.fixtures.text2text_folders import write_text2text
from tests.fixtures.whisper_folders import write_ctranslate2, write_whisper

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]


def built(model: Path, **options: Any) -> list[str]:
    bundle = edgekit.build(model, targets=["ort"], **options)
    return [variant.status for variant in bundle.variants]


def test_a_language_model_with_a_draft_and_an_adapter(tmp_path: Path) -> None:
    gguf = write_tiny(tmp_path / "tiny.gguf")
    model = open_language_model(gguf)
    folder = write_folder(tmp_path / "model", model, shards=2)
    adapter = write_peft(tmp_path / "pirate", random_pairs(model, spread=0.2))
    (tmp_path / "draft").mkdir()
    gguf.rename(tmp_path / "draft" / "tiny.gguf")
    folder, adapter, draft = (
        as_snapshot(path, tmp_path / "hub") for path in (folder, adapter, tmp_path / "draft")
    )
    statuses = built(folder, draft=draft / "tiny.gguf", adapters={"pirate": adapter})
    assert all(status.startswith("verified") for status in statuses), statuses


@pytest.mark.parametrize(
    ("folder_of", "read"),
    [
        (partial(write_text2text, family="marian"), open_text2text_model),
        (partial(write_text2text, family="t5"), open_text2text_model),
        (write_moonshine, open_speech_model),
        (write_whisper, open_speech_model),
        (write_ctranslate2, open_speech_model),
    ],
)
def test_encoder_decoders_are_read(folder_of: Any, read: Any, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    snapshot = as_snapshot(folder, tmp_path / "hub")
    assert read(snapshot).sha256 == read(folder).sha256
    limits = limits_of("build", {"model": snapshot, "targets": ["ort"]})
    reads = bounds_of(limits, {"model": snapshot}, tmp_path / "own").reads
    assert {os.path.realpath(file) for file in snapshot.iterdir()} < set(reads)
    assert not any(Path(path) in (snapshot.parents[1], snapshot.parents[1] / "blobs") for path in reads)


def test_external_data_and_the_files_beside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "vit"}')
    weight = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
            "product",
            [onnx.helper.make_tensor_value_info("x", 1, (2, 64))],
            [onnx.helper.make_tensor_value_info("y", 1, (2, 128))],
            [onnx.numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 17)],
        ir_version=10,
    )
    path = folder / "onnx" / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    snapshot = as_snapshot(folder, tmp_path / "hub")
    for source in (snapshot, snapshot / "onnx" / "model.onnx"):
        assert built(source)[0].startswith("verified")


@pytest.mark.parametrize(
    ("name", "trusted"),
    [("tokenizer.json", False), ("model.safetensors", True), ("generation_config.json", True)],
)
def test_a_link_to_elsewhere_is_refused(name: str, trusted: bool, tmp_path: Path) -> None:
    model = open_language_model(write_tiny(tmp_path / "tiny.gguf"))
    snapshot = as_snapshot(write_folder(tmp_path / "model", model), tmp_path / "hub")
    (tmp_path / "secret").write_text("{}")
    (snapshot / name).unlink(missing_ok=True)
    (snapshot / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError) as error:
        built(snapshot, trusted=trusted)
    assert str(error.value) == (
        f"{snapshot / name}: cannot be read (it is a symbolic link; replace it by the file that it leads to)"
    )
