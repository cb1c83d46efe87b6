"""Tokens to text, piece by piece: joined, they are the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.generate import TextParts
from edgekit.generate.device.text_tokens import TextPieces, TextTokenizer, check_length
from tests.fixtures.numpy_decoder import BYTES, SPECIAL

pytestmark = pytest.mark.needs_tokenizers


@pytest.fixture(scope="module")
def tokenizer(parts: TextParts) -> TextTokenizer:
    return TextTokenizer(parts.tokenizer)


def pieces(tokenizer: TextTokenizer, tokens: list[int]) -> list[str]:
    stream = TextPieces(tokenizer)
    return [*map(stream.push, tokens), stream.rest()]


@settings(max_examples=40)
@given(text=st.text(max_size=30))
def test_a_text_comes_back(tokenizer: TextTokenizer, text: str) -> None:
    tokens = tokenizer.encode(text, reads_special=False)
    assert "".join(pieces(tokenizer, tokens)) == text


@settings(max_examples=40)
@given(tokens=st.lists(st.integers(0, BYTES + 1), max_size=90))
def test_any_bytes_are_the_text_that_the_tokenizer_gives(tokenizer: TextTokenizer, tokens: list[int]) -> None:
    assert "".join(pieces(tokenizer, tokens)) == tokenizer.decode(tokens)


def test_a_character_is_one_piece(tokenizer: TextTokenizer) -> None:
    assert pieces(tokenizer, tokenizer.encode("aé😀b")) == ["a", "", "é", "", "", "", "😀", "b", ""]


def test_bytes_that_never_become_a_character_do_not_wait_for_ever(tokenizer: TextTokenizer) -> None:
    (bad,) = {tokenizer.encode("é")[1]}  # a continuation byte
    shown = pieces(tokenizer, [bad] * 200)
    assert "".join(shown[:-1]).count("\ufffd") > 150
    assert len("".join(shown)) == 200


def test_special_tokens_are_read_or_spelled(tokenizer: TextTokenizer) -> None:
    assert tokenizer.special == SPECIAL
    assert tokenizer.encode(SPECIAL[0]) == [BYTES]
    assert len(tokenizer.encode(SPECIAL[0], reads_special=False)) == len(SPECIAL[0])
    assert tokenizer.encode(SPECIAL[0]) == [BYTES]


def test_what_is_no_text_is_refused(tokenizer: TextTokenizer) -> None:
    with pytest.raises(UsageError, match="a text must be a str, not a bytes"):
        tokenizer.encode(b"x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        tokenizer.encode("\ud800")
    with pytest.raises(UsageError, match="the text has 65 characters, and the context is 2 tokens"):
        check_length("x" * 65, 2)
