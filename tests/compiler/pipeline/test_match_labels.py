"""Zero-shot classification: an image tower with its labels, against numpy and against transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.predictions.embed import Embedding
from edgekit.processing.tokenizer import tokenize
from edgekit.runtime import Gallery, Session
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array

pytestmark = pytest.mark.needs_ort
IMAGE = {
    "kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch",
    "mean": [120.0, 110.0, 100.0], "std": [60.0, 60.0, 60.0],
}  # fmt: skip
LABELS = ("cat", "dog", "bird")
WORDS = ("<start>", "<end>", "a", "photo", "of", *LABELS)
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {"id": number, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for number, text in enumerate(WORDS[:2])
    ],
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<start>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<end>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            text: {"id": text, "ids": [number], "tokens": [text]} for number, text in enumerate(WORDS[:2])
        },
    },
    "model": {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(WORDS)}, "unk_token": "a"},
}  # fmt: skip
TEXT_CARD = """
title = "text tower"
[inputs.input_ids]
kind = "text"
part = "ids"
shape = [1, 12]
tokenizer = "tokenizer.json"
pad_id = 1
[inputs.attention_mask]
kind = "text"
part = "mask"
shape = [1, 12]
[task]
kind = "embed"
decode = "vector"
outputs = { embedding = "text_embeds" }
"""


def card_of(task: dict[str, Any], **image: Any) -> Card:
    return parse_card({"title": "tower", "inputs": {"x": {**IMAGE, **image}}, "task": task})


EMBED = {"kind": "embed", "decode": "vector", "outputs": {"embedding": "embedding"}}


TOWER = """
<ir_version: 8, opset_import: ["": 17]>
tower (float[1,3,8,8] x) => (float[1,16] embedding, float[1,16,4,4] features)
{
    weights = RandomNormal<shape = [16,3,2,2], seed = 1.0>()
    features = Conv<strides = [2,2]>(x, weights)
    bent = Relu(features)
    means = GlobalAveragePool(bent)
    shape = Constant<value = int64[2] {1,16}>()
    embedding = Reshape(means, shape)
}
"""
"""An image tower: 16 values of a picture, beside an output that nothing needs."""


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    weights = np.random.default_rng(3).standard_normal((16, 3, 2, 2)).astype(np.float32)
    model = onnx.parser.parse_model(TOWER)
    del model.graph.node[0]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "weights"))
    onnx.checker.check_model(model, full_check=True)
    path = tmp_path / "tower.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def gallery_of(size: int, labels: tuple[str, ...] = LABELS, seed: int = 5) -> Gallery:
    random, gallery = np.random.default_rng(seed), Gallery()
    for label in labels:
        gallery.add(label, random.standard_normal(size))
    return gallery


def picture(seed: int) -> Array:
    found: Array = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return found


@pytest.mark.parametrize(
    "target",
    [
        "ort",
        pytest.param("openvino", marks=pytest.mark.needs_openvino),
        pytest.param("tflite", marks=pytest.mark.needs_tflite),
    ],
)
def test_scores_are_the_softmax_of_scaled_cosines(target: str, tower: Path, tmp_path: Path) -> None:
    gallery = gallery_of(16, (*LABELS, "dog"))
    matched = edgekit.match_labels(tower, card_of(EMBED), gallery, scale=20)
    matched.save(tmp_path / "pets.onnx")
    built = edgekit.build(tmp_path / "pets.onnx", targets=[target], card=matched.card)
    assert built.variants[0].verified, built.variants[0].status
    plain = edgekit.build(tower, targets=["ort"], card=card_of(EMBED))
    dog = gallery.vectors[1].astype(float) + gallery.vectors[3]
    vectors = np.stack([gallery.vectors[0], dog / np.linalg.norm(dog), gallery.vectors[2]])
    with Session(built, strict=True) as session, Session(plain) as embeds:
        for seed in range(5):
            cosines = vectors @ embeds.predict(picture(seed)).vector
            powers = np.exp(20 * cosines)
            found = session.predict(picture(seed))
            order = np.argsort(-powers)
            assert [each.label for each in found] == [LABELS[index] for index in order]
            np.testing.assert_allclose(found.scores, (powers / powers.sum())[order], atol=1e-4)
        assert [spec.name for spec in session.outputs] == ["label_cosines"]


def test_what_does_not_fit_is_refused(tower: Path) -> None:
    def refusal(card: Card, gallery: Gallery, **options: Any) -> str:
        with pytest.raises(UsageError) as refused:
            edgekit.match_labels(tower, card, gallery, **options)
        return str(refused.value)

    card = card_of(EMBED)
    assert refusal(card, Gallery()) == (
        "the gallery of labels is empty; add the text tower's embedding of each label"
    )
    assert refusal(card, gallery_of(8)) == (
        "the labels' embeddings have 8 values but embedding 16; both towers must be those of one model"
    )
    assert refusal(card, gallery_of(16), scale=0) == "scale is 0; it must be above 0"
    other = card_of({"kind": "embed", "decode": "vector", "outputs": {"embedding": "pooled"}})
    assert refusal(other, gallery_of(16)) == (
        "tower: the card's output pooled is not an output of tower.onnx"
    )
    classes = card_of({"kind": "classify", "decode": "logits", "outputs": {"scores": "embedding"}})
    assert refusal(classes, gallery_of(16)) == (
        'tower does not return embeddings; its card needs kind = "embed" and decode = "vector"'
    )
    opposite = Gallery()
    opposite.add("cat", np.eye(16)[0])
    opposite.add("cat", -np.eye(16)[0])
    assert refusal(card, opposite) == "the embeddings of 'cat' cancel out; leave some of them out"


def test_clip_of_transformers_has_the_same_classes(tmp_path: Path) -> None:
    """A folder of random weights: both towers as bundles, against the whole model in PyTorch."""
    torch: Any = pytest.importorskip("torch")
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes["projection_dim"] = 24
    text = {
        **sizes,
        "vocab_size": len(WORDS),
        "max_position_embeddings": 12,
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    config = transformers.CLIPConfig(
        text_config={**text, "pad_token_id": 1},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )
    transformers.CLIPModel(config).eval().save_pretrained(tmp_path / "clip")
    (tmp_path / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    clip = transformers.CLIPModel.from_pretrained(tmp_path / "clip").eval()
    words = transformers.CLIPTextModelWithProjection.from_pretrained(tmp_path / "clip").eval()
    sight = transformers.CLIPVisionModelWithProjection.from_pretrained(tmp_path / "clip").eval()
    example = {name: torch.ones(1, 12, dtype=torch.int64) for name in ("input_ids", "attention_mask")}
    (tmp_path / "text.toml").write_text(TEXT_CARD)
    texts = edgekit.build(words, example_inputs=example, targets=["ort"], card=tmp_path / "text.toml")
    gallery = Gallery()
    with Session[Embedding](texts) as session:
        for label in LABELS:
            gallery.add(label, session.predict(f"a photo of a {label}"))
    image = {"shape": [1, 3, 32, 32]}
    task = {**EMBED, "outputs": {"embedding": "image_embeds"}}
    card = card_of(task, **image)
    card = replace(card, inputs={"pixel_values": replace(card.inputs["x"], name="pixel_values")})
    tower = edgekit.import_model(sight, example_inputs=(torch.zeros(1, 3, 32, 32),))
    tower.save(tmp_path / "image.onnx")
    scale = float(clip.logit_scale.exp().detach())
    matched = edgekit.match_labels(tmp_path / "image.onnx", card, gallery, scale=scale)
    matched.save(tmp_path / "match.onnx")
    names = [name for name in ("ort", "openvino", "tflite") if resolve(find_profile(name)).missing() is None]
    built = edgekit.build(tmp_path / "match.onnx", targets=names, card=matched.card)
    ids = torch.tensor(
        [tokenize(json.dumps(TOKENIZER).encode(), f"a photo of a {x}", 12, True).ids for x in LABELS]
    )
    for variant in built.variants:
        assert variant.verified, variant.status
        with Session(built, variant=variant.name, strict=True) as session:
            for seed in range(4):
                frame = np.random.default_rng(seed).integers(0, 256, (32, 32, 3)).astype(np.uint8)
                pixels = session.prepare(frame)[0]["pixel_values"]
                with torch.no_grad():
                    whole = clip(input_ids=ids, pixel_values=torch.from_numpy(pixels))
                expected = whole.logits_per_image.softmax(-1)[0].numpy()
                found = session.predict(frame)
                assert list(found.indices) == list(np.argsort(-expected))
                np.testing.assert_allclose(found.scores, np.sort(expected)[::-1], rtol=2e-3)
                cosines = session.run({"pixel_values": pixels})["label_cosines"]
                exact = whole.logits_per_image.numpy() / scale
                assert 10 * np.log10(np.square(exact).sum() / np.square(cosines - exact).sum()) > 80
