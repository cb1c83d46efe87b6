"""A text becomes token ids, their mask and their segments."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgekit.errors import CardError, UsageError
from edgekit.processing import Card
from edgekit.processing.card import parse_card
from edgekit.processing.processing import prepare
from edgekit.processing.tokenizer import padding_id, vocabulary_size
from tests.fixtures.texts import TOKENIZER, table, text_card

pytestmark = pytest.mark.needs_tokenizers

PAD, UNKNOWN, CLS, SEP, THE, FOOD, WAS, GOOD = 0, 1, 2, 3, 4, 13, 7, 10


def test_a_short_text_is_padded() -> None:
    feeds, placed = prepare(text_card(), "The food was GOOD")
    assert feeds["ids"].tolist() == [[CLS, THE, FOOD, WAS, GOOD, SEP, PAD, PAD]]
    assert feeds["mask"].tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]
    assert feeds["ids"].dtype == np.int64
    assert placed.mask.tolist() == [1, 1, 1, 1, 1, 1, 0, 0]


def test_a_long_text_is_truncated_within_its_special_tokens() -> None:
    feeds, _ = prepare(text_card(), "the food " * 20)
    assert feeds["ids"].tolist() == [[CLS, *[THE, FOOD] * 3, SEP]]


@pytest.mark.parametrize(
    ("entry", "ids", "mask"),
    [
        ({"padding": "left"}, [PAD, PAD, PAD, PAD, CLS, GOOD, UNKNOWN, SEP], [0, 0, 0, 0, 1, 1, 1, 1]),
        ({"pad_id": 9}, [CLS, GOOD, UNKNOWN, SEP, 9, 9, 9, 9], [1, 1, 1, 1, 0, 0, 0, 0]),
        ({"special_tokens": False}, [GOOD, UNKNOWN, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_settings(entry: dict[str, Any], ids: list[int], mask: list[int]) -> None:
    feeds, _ = prepare(text_card(**entry), "good xylophones")
    assert feeds["ids"].tolist() == [ids]
    assert feeds["mask"].tolist() == [mask]


def test_types_and_32_bits() -> None:
    card = table(dtype="int32", shape=[8])
    card["inputs"]["types"] = {"kind": "text", "part": "types", "shape": [1, 8], "dtype": "int32"}
    feeds, _ = prepare(parse_card(card, files=lambda name: TOKENIZER.read_bytes()), "good")
    assert feeds["types"].tolist() == [[0] * 8]
    assert feeds["ids"].shape == (8,)
    assert feeds["ids"].dtype == feeds["types"].dtype == np.int32


def pair_card() -> Card:
    card = table(pair=True)
    card["inputs"]["types"] = {"kind": "text", "part": "types", "shape": [1, 8]}
    return parse_card(card, files=lambda name: TOKENIZER.read_bytes())


@pytest.mark.parametrize("pair", [("the food", "was good"), ["the food", "was good"], "the food\twas good"])
def test_two_texts_go_in_together(pair: Any) -> None:
    feeds, placed = prepare(pair_card(), pair)
    assert feeds["ids"].tolist() == [[CLS, THE, FOOD, SEP, WAS, GOOD, SEP, PAD]]
    assert feeds["types"].tolist() == [[0, 0, 0, 0, 1, 1, 1, 0]]
    assert placed.mask.tolist() == [1] * 7 + [0]


def test_the_longer_of_two_texts_is_truncated() -> None:
    feeds, _ = prepare(pair_card(), ("the food", "was good " * 9))
    assert feeds["ids"].tolist() == [[CLS, THE, FOOD, SEP, WAS, GOOD, WAS, SEP]]


@pytest.mark.parametrize("texts", ["the food", ("the food",), ("the", "food", "was"), 7])
def test_what_is_no_pair_is_refused(texts: Any) -> None:
    with pytest.raises(UsageError) as error:
        prepare(pair_card(), texts)
    assert str(error.value) == (
        "the model reads a pair of texts: pass a pair, or one str with a tab between them"
    )


def test_an_empty_text_is_its_special_tokens() -> None:
    assert prepare(text_card(), "")[0]["mask"].sum() == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"good", "a text must be a str, not a bytes"),
        ("a" * 100_001, "the text has 100001 characters; the limit is 100000: shorten it first"),
        ("\ud800", "the text contains half of a surrogate pair; decode it again"),
    ],
)
def test_what_is_no_text(text: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        prepare(text_card(), text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "the card's tokenizer cannot be used: "),
        (b"{}", "the card's tokenizer cannot be used: "),
        (b"[" * 100_000, "the card's tokenizer cannot be used: "),
    ],
)
def test_what_is_no_tokenizer(content: bytes, message: str) -> None:
    card = parse_card(table(), files=lambda name: content)
    with pytest.raises(CardError) as error:
        prepare(card, "good")
    assert str(error.value).startswith(message)
    assert str(error.value).endswith("; save it again with tokenizers")


def test_a_card_without_its_files() -> None:
    with pytest.raises(CardError) as error:
        prepare(parse_card(table()), "good")
    assert (
        str(error.value)
        == "the card's tokenizer, tokenizer.json, was not loaded; load the card with its files"
    )


def changed(**keys: Any) -> bytes:
    return json.dumps({**json.loads(TOKENIZER.read_bytes()), **keys}).encode()


def test_padding_is_what_the_tokenizer_pads_with() -> None:
    added = [{"content": "<pad>", "id": 7}]
    named = {"model": {"vocab": {"a": 0, "[PAD]": 5}}}
    assert padding_id(changed(padding={"pad_id": 24})) == 24
    assert padding_id(TOKENIZER.read_bytes()) == 0
    assert padding_id(json.dumps(named).encode()) == 5
    assert padding_id(json.dumps({"model": {"vocab": [["a", 0.0]]}, "added_tokens": added}).encode()) == 7
    assert padding_id(json.dumps({"model": {}}).encode()) == 0


def test_the_size_of_the_vocabulary() -> None:
    assert vocabulary_size(TOKENIZER.read_bytes()) == 25
    added = [{"content": "<mask>", "id": 30}]
    assert (
        vocabulary_size(json.dumps({"model": {"vocab": [["a", 0.0]]}, "added_tokens": added}).encode()) == 31
    )
    for content in (b"{", b"{}", b"[1]"):
        with pytest.raises(CardError, match="the card's tokenizer is not "):
            vocabulary_size(content)
