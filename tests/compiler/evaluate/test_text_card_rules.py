"""A tokenizer that is not the model's contradicts its embedding or the texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
from edgekit.errors import CardError
from edgekit.processing.tokenizer import unknown_id
from tests.fixtures.texts import TOKENIZER, WORDS, reviews_model, text_card

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tokenizers]


def findings(folder: Path, texts: str, rows: int) -> list[str]:
    samples = folder / "texts.txt"
    samples.write_text(texts)
    model = reviews_model(folder / "reviews.onnx", rows)
    bundle = edgekit.build(model, targets=["ort"], card=text_card(), samples=samples)
    found: list[str] = bundle.manifest["samples"]["card"]
    return found


@pytest.mark.parametrize("rows", [WORDS, WORDS + 2])
def test_a_right_tokenizer_is_not_blamed(tmp_path: Path, rows: int) -> None:
    assert findings(tmp_path, "the food was very good\nbad service\n", rows) == []


def test_unknown_tokens_are_a_warning(tmp_path: Path) -> None:
    assert findings(tmp_path, "das Essen was good\nbad service\n", WORDS) == [
        "2 of 10 tokens of the texts are unknown to tokenizer.json of inputs.ids: it is not the model's, or "
        "the texts are in another language"
    ]


def test_the_vocabulary_is_as_large_as_the_embedding(tmp_path: Path) -> None:
    line = "tokenizer.json of inputs.ids has 25 tokens, but the model's embedding"
    another = line + " {}: it is another model's tokenizer"
    assert findings(tmp_path, "good\n", 60) == [another.format(60)]
    with pytest.raises(CardError) as error:
        findings(tmp_path, "good\n", 20)
    assert str(error.value).splitlines() == [
        "reader: this card does not fit the model",
        f"  {another.format(20)}",
        "  correct the card, or use force=True to build anyway",
    ]


def test_unknown_ids_of_each_kind_of_tokenizer() -> None:
    assert unknown_id(TOKENIZER.read_bytes()) == 1
    assert unknown_id(b'{"model": {"type": "Unigram", "unk_id": 3, "vocab": []}}') == 3
    assert unknown_id(b'{"model": {"type": "BPE", "unk_token": null, "vocab": {}}}') is None
