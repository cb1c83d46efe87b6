"""A text's parts in a card: what is read, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.processing.card import load_card, parse_card
from edgekit.processing.inputs.text import TextInput
from tests.fixtures.texts import TOKENIZER, table, text_card


def test_parts_and_their_defaults() -> None:
    card = text_card()
    assert card.inputs["ids"] == TextInput("ids", (1, 8), "ids", "tokenizer.json")
    assert card.inputs["mask"] == TextInput("mask", (1, 8), "mask")
    assert card.files == {"tokenizer.json": TOKENIZER.read_bytes()}
    assert card.ranges() == {}


def test_it_travels_as_json_without_its_file() -> None:
    card = text_card(padding="left", pad_id=3, special_tokens=False, dtype="int32")
    assert parse_card(card.as_json(), files=lambda name: card.files[name]) == card
    assert "[CLS]" not in str(card.as_json())


TOML = """
title = "reader"
[inputs.ids]
kind = "text"
part = "ids"
shape = [1, 8]
tokenizer = "tokenizer.json"
"""


def test_the_tokenizer_is_a_file_beside_the_card(tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text(TOML, "utf-8")
    with pytest.raises(CardError) as error:
        load_card(tmp_path / "card.toml")
    assert str(error.value) == f"{tmp_path / 'tokenizer.json'}: file not found"
    (tmp_path / "tokenizer.json").symlink_to(TOKENIZER)
    with pytest.raises(CardError, match=r"tokenizer\.json can't be read as a tokenizer: "):
        load_card(tmp_path / "card.toml")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    assert load_card(tmp_path / "card.toml").files["tokenizer.json"] == TOKENIZER.read_bytes()


@pytest.mark.parametrize(
    ("name", "entry", "text"),
    [
        (
            "ids",
            {"tokenizer": "../tokenizer.json"},
            ".ids.tokenizer is '../tokenizer.json'; it must be a .json file in the card's folder, named with "
            "letters, digits, '.', '_' and '-'",
        ),
        (
            "ids",
            {"tokenizer": "vocab.txt"},
            ".ids.tokenizer is 'vocab.txt'; it must be a .json file in the card's folder, named with "
            "letters, digits, '.', '_' and '-'",
        ),
        ("ids", {"part": "words"}, ".ids.part is 'words'; it must be one of ids, mask, types"),
        ("ids", {"shape": [2, 8]}, ".ids.shape is [2, 8]; it must be [1, tokens] or [tokens], at most 65536"),
        (
            "ids",
            {"shape": [65537]},
            ".ids.shape is [65537]; it must be [1, tokens] or [tokens], at most 65536",
        ),
        ("ids", {"pad_id": -2}, ".ids.pad_id is -2; it must be from 0, or -1 for the tokenizer's own"),
        ("ids", {"dtype": "float32"}, ".ids.dtype is 'float32'; it must be one of int64, int32"),
        ("mask", {"padding": "left"}, ".mask.padding is allowed for part = 'ids' only"),
        (
            "mask",
            {"shape": [1, 9]},
            ": the parts of a text have different lengths: ids 8, mask 9",
        ),
        (
            "mask",
            {"part": "ids", "tokenizer": "t.json"},
            ": the parts of a text are ids, ids; exactly one ids is needed, and at most one mask "
            "and one types",
        ),
    ],
)
def test_what_is_refused(name: str, entry: dict[str, Any], text: str) -> None:
    card = copy.deepcopy(table())
    card["inputs"][name].update(entry)
    with pytest.raises(CardError) as error:
        parse_card(card)
    assert str(error.value) == f"card: inputs{text}"


def test_ids_need_a_tokenizer() -> None:
    card = copy.deepcopy(table())
    del card["inputs"]["ids"]["tokenizer"]
    with pytest.raises(CardError) as error:
        parse_card(card)
    assert str(error.value) == "card: inputs.ids has no tokenizer; it must be a text"
