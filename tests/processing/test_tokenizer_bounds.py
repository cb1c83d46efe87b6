"""Tokenizers of strangers: those that make texts endless are refused, and known kinds are not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from edgekit.errors import CardError
from edgekit.generate.device.text_tokens import TextTokenizer
from edgekit.processing import tokenizer_bounds
from edgekit.processing.tokenizer import tokenize

pytestmark = pytest.mark.needs_tokenizers
MODEL = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}
EMPTY: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": MODEL,
}  # fmt: skip
ID_A, ID_B = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}


def replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def normalizers(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def table(size: int, text: bytes) -> dict[str, Any]:
    packed = size.to_bytes(4, "little") + bytes(1024) + text
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(packed).decode()}


def split_into(*texts: dict[str, Any]) -> dict[str, Any]:
    special = {"Q": {"id": "Q", "ids": [0] * 600, "tokens": ["a"] * 600}}
    return {
        "type": "TemplateProcessing",
        "single": list(texts),
        "pair": [ID_A, ID_B],
        "special_tokens": special,
    }


def splits(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


TWICE = [replace("a", "aa")]
Q = {"SpecialToken": {"id": "Q", "type_id": 0}}
SPLITS = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
METASPACE = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GROWS, DAMAGED = "it may make a text more than 1000 times as long", "its precompiled_charsmap is damaged"
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "long replacements": (normalizers(*[replace("a", "a" * 1000)] * 4), GROWS),
    "doubling": (normalizers(*TWICE * 34), GROWS),
    "doubling in sequences": (normalizers(*[normalizers(*TWICE * 6)["normalizer"]] * 6), GROWS),
    "empty matches": (normalizers(*[{**replace("", "b"), "pattern": {"Regex": "x*"}}] * 34), GROWS),
    "bytes": (normalizers(*[{"type": "ByteLevel"}] * 34), GROWS),
    "at each split": (splits([SPLITS, METASPACE] * 34), GROWS),
    "bytes of bytes": (splits([BYTES] * 34), GROWS),
    "after it": ({"post_processor": split_into(*[ID_A] * 1200)}, GROWS),
    "special tokens": ({"post_processor": split_into(Q, Q, ID_A)}, "it adds more than 1000 special tokens"),
    "back to text": ({"decoder": {"type": "Sequence", "decoders": TWICE * 34}}, GROWS),
    "a table of one text": (normalizers(table(1024, b"x" * 2000 + b"\0")), GROWS),
    "a table that states another size": (normalizers(table(0x7FFFFFFC, b"x\0")), DAMAGED),
    "no table": (normalizers({"type": "Precompiled", "precompiled_charsmap": "?"}), DAMAGED),
    "steps": (normalizers(*[{"type": "Lowercase"}] * 201), "it has more than 200 steps"),
    "a long word": (
        {"model": {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 10**18, "vocab": {"a": 0}}},
        "its max_input_chars_per_word is above 10000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "why"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tokenizer_is_one_error(changes: dict[str, Any], why: str) -> None:
    content = json.dumps({**EMPTY, **changes}).encode()
    for use in (TextTokenizer, lambda file: tokenize(file, "aa", 8, True)):
        with pytest.raises(CardError) as caught:
            use(content)
        assert str(caught.value) == f"the card's tokenizer can't be used: {why}"


def test_a_key_that_is_hidden_by_escapes_is_found() -> None:
    content = json.dumps({**EMPTY, **HOSTILE["a table that states another size"][0]})
    hidden = content.replace("precompiled_charsmap", "\\u0070recompiled_charsmap")
    with pytest.raises(CardError, match=DAMAGED):
        TextTokenizer(hidden.encode())


def test_a_text_that_may_become_too_long_is_refused() -> None:
    tokenizer = TextTokenizer(json.dumps({**EMPTY, **normalizers(replace("a", "b" * 900))}).encode())
    assert len(tokenizer.encode("a" * 9)) == 8100
    with pytest.raises(CardError) as caught:
        tokenizer.encode("b" * 100_000)
    assert str(caught.value) == (
        "the card's tokenizer can't be used: it may make the 100000 characters of this text 900 times as many"
    )


def split_by(pattern: str) -> bytes:
    return json.dumps({**EMPTY, "pre_tokenizer": {**SPLITS, "pattern": {"Regex": pattern}}}).encode()


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a|a)*c", "(a*)*c", "(?:a|aa)+$", "((a?b?))*$", "(?<n>a{1,3}){2,}$", "([)]+)*$",
        "([]a]|a)*$",
        r"(a)\1", r"(?<n>a|b\g<n>c)", r"(\p{L}+)*$", "(?i:a|A){20}$", "((a+)b)*$", "(?=(a+)*$)",
    ],
)  # fmt: skip
def test_patterns_that_backtrack_are_refused(pattern: str) -> None:
    with pytest.raises(CardError) as caught:
        TextTokenizer(split_by(pattern))
    assert str(caught.value) == (
        f"the card's tokenizer can't be used: its pattern {pattern!r} repeats a group that holds a"
        " repetition or a choice, or refers to a group: its time may double with each character of a text"
    )


KNOWN = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",  # Llama 3
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\s+",  # GPT-4o
    r"(?<=\d)(?=(?:\d{3})+$)",  # groups of three digits
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",  # DeepSeek
    r"<\|startoftext\|>|<\|endoftext\|>|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",  # CLIP
]


@pytest.mark.parametrize("pattern", KNOWN)
def test_known_patterns_are_taken(pattern: str) -> None:
    assert TextTokenizer(split_by(pattern)).encode("a b" * 1000)


@pytest.mark.parametrize("limited", [True, False])
def test_a_tokenizer_that_was_slow_once_is_not_asked_again(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no look at the pattern finds costs one text: Oniguruma's limit, or its time."""
    monkeypatch.setattr(tokenizer_bounds, "_repeats_in_itself", lambda pattern: False)
    if not limited:
        monkeypatch.setattr(tokenizer_bounds, "TEXT_SECONDS", 0.0)
        monkeypatch.setattr(tokenizer_bounds, "CHARACTER_SECONDS", 1e-9)
    pattern, text = ("(a|a)*$", "a" * 40 + "b") if limited else (KNOWN[0], "a b" * 1000)
    tokenizer = TextTokenizer(split_by(pattern))
    if limited:
        with pytest.raises(CardError, match="retry-limit"):
            tokenizer.encode(text)
    else:
        tokenizer.encode(text)
    story = "met the limit of its regular expressions" if limited else r"took \d+\.\d s"
    for _ in range(2):
        with pytest.raises(CardError, match=rf"can't be used: a text of {len(text)} characters {story}$"):
            tokenizer.encode("a")


def test_tokens_whose_texts_are_too_long_are_no_text() -> None:
    long = json.dumps({**EMPTY, "model": {**MODEL, "vocab": {"a" * 5000: 0, "b": 1}}}).encode()
    tokenizer = TextTokenizer(long)
    assert tokenizer.decode([1, 1]) == "b b"
    with pytest.raises(CardError, match="1 tokens of it have 5000 characters"):
        tokenizer.decode([0])


LLAMA = {
    **normalizers({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
    "decoder": {
        "type": "Sequence",
        "decoders": [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
    },
}  # fmt: skip
ALBERT = {
    **normalizers(replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"},
                  {"type": "Lowercase"}, table(1024, b"x" * 36 + b"\0" + b"y\0"),
                  {**replace("", " "), "pattern": {"Regex": " {2,}"}}),
    "pre_tokenizer": METASPACE, "decoder": METASPACE,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, LLAMA, ALBERT, {"pre_tokenizer": BYTES, "decoder": BYTES}])
def test_known_kinds_take_long_texts(changes: dict[str, Any]) -> None:
    tokenizer = TextTokenizer(json.dumps({**EMPTY, **changes}).encode())
    tokenizer._bounds.check("a" * 400_000)  # 100,000 tokens of words
    tokenizer.decode(tokenizer.encode("a b" * 1000))
    assert tokenizer._bounds.growth <= tokenizer_bounds.GROWTH_LIMIT / 5
