"""Drafted cards of models of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.card_inference.draft import draft_card
from tests.fixtures import models, texts

pytestmark = pytest.mark.needs_ort

TOKENS = """<ir_version: 8, opset_import: ["": 17]>
tokens (int64[N,T] input_ids, int64[N,T] attention_mask, int64[N,T] token_type_ids) => (float[N,T,80] hidden)
<float[30,80] table>
{
    sum = Add(input_ids, token_type_ids)
    ids = Mul(sum, attention_mask)
    hidden = Gather(table, ids)
}
"""


def test_parts_are_known_by_their_names(tmp_path: Path) -> None:
    text = TOKENS.replace("<float[30,80] table>", "").replace(
        "{\n", "{\n    shape = Constant<value_ints = [30, 80]>()\n    table = ConstantOfShape(shape)\n", 1
    )
    draft = draft_card(models.write(tmp_path, text))
    assert {name: entry.as_json()["part"] for name, entry in draft.card.inputs.items()} == {
        "input_ids": "ids",
        "attention_mask": "mask",
        "token_type_ids": "types",
    }
    assert draft.card.inputs["input_ids"].shape == (1, 128)
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.card.task.decode) == ("embed", "mean-pooling")
    assert "inputs.input_ids.tokenizer" in draft.guessed
    assert (
        'tokenizer = "tokenizer.json"  # guessed: the model\'s own tokenizer file, beside this card'
        in draft.text
    )


def test_a_few_numbers_are_classes(tmp_path: Path) -> None:
    draft = draft_card(texts.reviews_model(tmp_path / "reviews.onnx"))
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.card.task.decode) == ("classify", "logits")
    assert "task.decode" in draft.guessed


def test_one_number_is_how_well_a_text_fits_another(tmp_path: Path) -> None:
    text = (
        TOKENS.replace("float[N,T,80] hidden", "float[N,1] score")
        .replace("[30,80]", "[30,1]")
        .replace(
            "hidden = Gather(table, ids)",
            "found = Gather(table, ids)\n    score = ReduceMax<axes = [1], keepdims = 0>(found)",
        )
    )
    draft = draft_card(
        models.write(
            tmp_path,
            text.replace("<float[30,1] table>", "").replace(
                "{\n",
                "{\n    shape = Constant<value_ints = [30, 1]>()\n    table = ConstantOfShape(shape)\n",
                1,
            ),
        )
    )
    assert draft.card.task is not None
    assert (draft.card.task.kind, draft.card.task.decode) == ("rank", "logit")
    assert "inputs.input_ids.pair" in draft.guessed


def test_two_rows_of_integers_that_are_no_mask_are_no_text(tmp_path: Path) -> None:
    model = """<ir_version: 8, opset_import: ["": 17]>
    two (int64[1,8] left, int64[1,8] right) => (int64[1,8] sum) { sum = Add(left, right) }"""
    draft = draft_card(models.write(tmp_path, model))
    assert draft.card.task is None
    assert [entry.as_json()["kind"] for entry in draft.card.inputs.values()] == ["tensor", "tensor"]
