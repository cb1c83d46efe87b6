"""Cards from the files of Hugging Face folders, and their preprocessing against Pillow and numpy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.card_inference.hugging_face_files import read_files
from edgekit.compiler.importers.conversion import as_source
from edgekit.compiler.model.hugging_face_folder import onnx_in_folder
from edgekit.errors import ModelError
from edgekit.processing.image_preparation import prepare_image
from edgekit.runtime import Session
from tests.fixtures import models, texts
from tests.fixtures.classifier_folder import VIT, write_folder

pytestmark = pytest.mark.needs_ort


def test_a_folder_becomes_a_bundle_with_its_card(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "animals")
    bundle = edgekit.build(folder, targets=["ort"])
    bundle.save(tmp_path / "animals.edgekit")
    picture = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    with Session(tmp_path / "animals.edgekit") as session:
        scores = session.predict(picture)
    assert sorted(each.label for each in scores) == ["cat", "dog", "fox"]
    (note,) = edgekit.check(folder, ["ort"])
    assert (note.code, note.severity) == ("EK1107", "note")
    assert note.message.endswith('from the folder\'s files: shapes={"pixel_values": (1, 3, 24, 40)}')
    card = draft_card(folder).card
    assert card == edgekit.draft_card(folder / "onnx" / "model.onnx").card  # in a child with few rights
    assert card.title == "animals"


def test_pixels_are_those_of_pillow_and_numpy(tmp_path: Path) -> None:
    draft = draft_card(write_folder(tmp_path / "vit"))
    assert draft.guessed == ()
    assert "labels = ['cat'" not in draft.text
    assert 'labels = ["cat", "dog", "fox"]  # id2label of config.json' in draft.text
    image = draft.card.image_input()
    assert (image.shape, image.colour, image.resize, image.interpolation) == (
        (1, 3, 24, 40), "RGB", "stretch", "cubic",
    )  # fmt: skip
    frame = np.random.default_rng(1).integers(0, 256, (61, 83, 3), np.uint8)
    pixels = np.asarray(Image.fromarray(frame).resize((40, 24), Image.Resampling.BICUBIC), np.float32)
    mean, std = np.float32(VIT["image_mean"]), np.float32(VIT["image_std"])
    expected = ((pixels / 255 - mean) / std).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(prepare_image(image, frame), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param(
            {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "resample": 2,
             "do_center_crop": True, "crop_size": {"height": 24, "width": 24}},
            {"resize": "resize-crop", "crop": 0.75, "shape": (1, 3, 24, 24), "interpolation": "linear"},
            id="shorter edge and crop",
        ),
        pytest.param(
            {"image_processor_type": "CLIPFeatureExtractor", "size": 32, "do_center_crop": True,
             "crop_size": 24},
            {"resize": "resize-crop", "crop": 0.75, "shape": (1, 3, 24, 24)},
            id="numbers of old files",
        ),
        pytest.param(
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224},
             "crop_pct": 0.875},
            {"resize": "resize-crop", "crop": 0.875, "shape": (1, 3, 224, 224)},
            id="ConvNeXT crops small pictures",
        ),
        pytest.param(
            {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384},
             "crop_pct": 0.875},
            {"resize": "stretch", "crop": 1.0, "shape": (1, 3, 384, 384)},
            id="ConvNeXT squeezes large ones",
        ),
        pytest.param(
            {"do_normalize": False}, {"mean": (0.0,) * 3, "std": (255.0,) * 3}, id="only rescaled"
        ),
        pytest.param(
            {"do_normalize": False, "do_flip_channel_order": True}, {"colour": "BGR"}, id="MobileViT's order"
        ),
        pytest.param(
            {"do_rescale": False, "do_normalize": False}, {"mean": (0.0,) * 3, "std": (1.0,) * 3}, id="bytes"
        ),
        pytest.param(
            {"rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False},
            {"mean": (127.5,) * 3, "std": (127.5,) * 3},
            id="offset",
        ),
    ],
)  # fmt: skip
def test_image_processors(tmp_path: Path, changed: dict[str, Any], expected: dict[str, Any]) -> None:
    draft = draft_card(write_folder(tmp_path / "model", {**VIT, **changed}))
    image = draft.card.image_input()
    assert {key: getattr(image, key) for key in expected} == expected
    assert "inputs.pixel_values.resize" not in draft.guessed


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"size": {"shortest_edge": 64, "longest_edge": 99}}, "it keeps the proportions of pictures"),
        ({"size": {"height": 32, "width": 32}, "do_center_crop": True, "crop_size": 24}, "it squeezes"),
        ({"resample": 1}, "its filter has Pillow's number 1"),
        ({"do_resize": False}, "it does not resize pictures"),
    ],
)  # fmt: skip
def test_what_a_card_cannot_say_is_marked(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    draft = draft_card(write_folder(tmp_path / "model", {**VIT, **changed}))
    assert "inputs.pixel_values.resize" in draft.guessed
    assert f"guessed: {why}" in draft.text


def test_placeholders_are_no_labels(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", id2label={str(k): f"LABEL_{k}" for k in range(3)})
    draft = draft_card(folder)
    assert draft.card.task is not None
    assert (draft.card.task.labels, "task.decode" in draft.guessed) == ((), True)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"image_std": ["a", "b", "c"]}, "could not convert string to float: 'a'"),
        ({"size": {"height": -5, "width": 4}}, "a size of -5"),
        ({"size": {"shortest_edge": "large"}}, "a size of large"),
        ({"rescale_factor": 0}, "float division by zero"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    folder = write_folder(tmp_path / "model", {**VIT, **changed})
    with pytest.raises(ModelError) as caught:
        draft_card(folder)
    named = folder / "preprocessor_config.json"
    assert str(caught.value) == f"{named}: has a value that is not valid: {why}"


def test_a_text_encoder_has_its_tokenizer_and_pooling(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    (folder / "1_Pooling").mkdir(parents=True)
    text = """<ir_version: 8, opset_import: ["": 17]>
    encoder (int64[N,T] input_ids, int64[N,T] attention_mask) => (float[N,T,80] hidden)
    { shape = Constant<value_ints = [30, 80]>()  table = ConstantOfShape(shape)
      ids = Mul(input_ids, attention_mask)  hidden = Gather(table, ids) }"""
    models.write(folder, text)
    shutil.copy(texts.TOKENIZER, folder / "tokenizer.json")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    settings = {"padding_side": "left", "pad_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    draft = draft_card(folder)
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.card.task.decode) == ("embed", "cls-pooling")
    ids = draft.card.inputs["input_ids"].as_json()
    assert (ids["tokenizer"], ids["padding"], ids["pad_id"]) == ("tokenizer.json", "left", 3)
    assert dict(draft.card.files) == {"tokenizer.json": texts.TOKENIZER.read_bytes()}
    assert draft.guessed == ("inputs.input_ids.shape", "inputs.attention_mask.shape")


def test_the_model_of_a_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model")
    assert as_source(folder) == folder / "onnx" / "model.onnx"
    shutil.copy(folder / "onnx" / "model.onnx", folder / "onnx" / "model_quantized.onnx")
    assert as_source(str(folder)) == folder / "onnx" / "model.onnx"
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_fp16.onnx")
    assert onnx_in_folder(folder) is None  # which of the two?
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "onnx" / "model_fp16.onnx").rename(folder / "onnx" / "model.onnx")
    assert as_source(folder) == folder  # its weights are read
    assert as_source(tmp_path) == tmp_path


def test_modules_of_transformers_have_labels() -> None:
    class Config:
        def to_dict(self) -> dict[str, Any]:
            return {"id2label": {0: "cat", 1: "dog"}}

    module = type("Module", (), {"config": Config(), "__module__": "transformers.models.vit"})()
    assert read_files(module).labels == {0: "cat", 1: "dog"}
    other = type("Module", (), {"config": Config(), "__module__": "mine"})()
    assert read_files(other).labels == {}
