"""A tokenizer as data: what the ``tokenizers`` package saves as ``tokenizer.json``."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from edgekit.errors import CardError, UsageError, need_package
from edgekit.processing.tokenizer_bounds import TokenizerBounds, checked_charsmaps
from edgekit.system.interrupts import pass_on

TOKENIZER_LIMIT_BYTES = 64 << 20
"""Largest file: XLM-RoBERTa's, with 250,000 pieces, has 17 MB."""
TEXT_LIMIT_CHARS = 100_000
"""Longest text: a tokenizer reads it whole before it truncates, with regular expressions of its file."""
TOKENS_LIMIT = 1 << 22
CACHED_WORDS = 2000
"""Words whose tokens the package remembers for each tokenizer. Its own 10,000 took 33 MB of a device's memory
after as many words of 100 letters; these take 7."""
PADDING = ("[PAD]", "<pad>", "<|endoftext|>")
"""Names of padding if a tokenizer does not say which of its tokens it is."""


class Tokens(NamedTuple):
    """A text's tokens: their ids, and their segments. Without padding."""

    ids: list[int]
    types: list[int]


def tokenize(
    content: bytes, text: str, length: int, special_tokens: bool, second: str | None = None
) -> Tokens:
    """Return the first tokens of a text, or of two texts.

    Args:
        text: At most TEXT_LIMIT_CHARS characters.
        length: At most so many tokens, special ones included.
        second: A text that goes in with the first. Where both are too long, the longer one is truncated.

    Raises:
        UsageError: a text is none, or too long.
        CardError: the file is not a tokenizer, or fails.
        MissingDependency: the package is not installed.
    """
    _check(text)
    if second is not None:
        _check(second)
    tokenizer, bounds = _open(content, length)
    whole = text + (second or "")
    bounds.check(whole)
    with bounds.timed(whole):
        encoding = guarded(tokenizer.encode, text, second, add_special_tokens=special_tokens)
    return Tokens(encoding.ids, encoding.type_ids)


def _check(text: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"a text must be a str, not a {type(text).__name__}")
    if len(text) > TEXT_LIMIT_CHARS:
        raise UsageError(
            f"the text has {len(text)} characters; the limit is {TEXT_LIMIT_CHARS}: shorten it first"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError("the text contains half of a surrogate pair; decode it again")


@lru_cache(maxsize=4)
def padding_id(content: bytes) -> int:
    """Return the padding id: the one that the tokenizer pads with, else that of its padding token, else 0.

    Raises:
        CardError: the file is not a tokenizer.
    """
    table = _parsed(content)
    padding = table.get("padding")
    if isinstance(padding, dict) and isinstance(padding.get("pad_id"), int):
        return int(padding["pad_id"])
    ids = _added(table)
    vocabulary = _vocabulary(table)
    if isinstance(vocabulary, dict):
        ids = {**vocabulary, **ids}
    return next((ids[name] for name in PADDING if isinstance(ids.get(name), int)), 0)


def token_id(content: bytes, text: str) -> int | None:
    """Return the id of a token; None if the tokenizer does not have it.

    Raises:
        CardError: the file is not a tokenizer.
    """
    table = _parsed(content)
    vocabulary = _vocabulary(table)
    number = {**(vocabulary if isinstance(vocabulary, dict) else {}), **_added(table)}.get(text)
    return number if isinstance(number, int) else None


def unknown_id(content: bytes) -> int | None:
    """Return the id that stands for words that the tokenizer does not know; None if it has none.

    Raises:
        CardError: the file is not a tokenizer.
    """
    model = _parsed(content).get("model")
    table = model if isinstance(model, dict) else {}
    number = table.get("unk_id")  # Unigram's; the others name the token
    if isinstance(number, int):
        return number
    return token_id(content, table["unk_token"]) if isinstance(table.get("unk_token"), str) else None


def vocabulary_size(content: bytes) -> int:
    """Return the number of tokens. All ids are below it.

    Raises:
        CardError: the file is not a tokenizer.
    """
    table = _parsed(content)
    added = [number for number in _added(table).values() if isinstance(number, int)]
    return max(len(_vocabulary(table)), *(number + 1 for number in added), 1)


@lru_cache(maxsize=4)
def token_texts(content: bytes) -> tuple[str, ...]:
    """Return the text of every token as the file spells it, by id; "" for ids that it does not name.

    Raises:
        CardError: the file is not a tokenizer, or has ids that are not its own.
    """
    table = _parsed(content)
    vocabulary = _vocabulary(table)
    if not isinstance(vocabulary, dict):  # Unigram's has pairs of a text and a score
        try:
            vocabulary = {str(text): number for number, (text, _) in enumerate(vocabulary)}
        except (TypeError, ValueError):
            raise CardError("the card's tokenizer has a malformed vocabulary; download it again") from None
    ids = {**vocabulary, **_added(table)}
    if not all(type(number) is int and 0 <= number < TOKENS_LIMIT for number in ids.values()):
        raise CardError("the card's tokenizer has ids that are not whole numbers from 0; download it again")
    texts = [""] * (max(ids.values(), default=-1) + 1)
    for text, number in ids.items():
        texts[number] = text
    return tuple(texts)


@lru_cache(maxsize=8)
def _open(content: bytes, length: int) -> tuple[Any, TokenizerBounds]:
    tokenizer = open_whole(content)
    bounds = guarded(TokenizerBounds, tokenizer)
    guarded(tokenizer.enable_truncation, max_length=length)
    return tokenizer, bounds


def need_tokenizers() -> Any:
    """Return the class ``Tokenizer`` of the package.

    Raises:
        MissingDependency: the package is not installed.
    """
    with need_package("tokenizers", "a text", extra="text"):
        from tokenizers import Tokenizer
    return Tokenizer


def open_whole(content: bytes) -> Any:
    """Open the package's ``Tokenizer`` without truncation or padding.

    Raises:
        CardError: the file is not a tokenizer.
        MissingDependency: the package is not installed.
    """
    tokenizer = guarded(need_tokenizers().from_buffer, checked_charsmaps(content))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    resize = getattr(tokenizer.model, "_resize_cache", None)  # of BPE and Unigram; others have no cache
    if resize is not None:
        guarded(resize, CACHED_WORDS)
    return tokenizer


def guarded(call: Any, *values: Any, **options: Any) -> Any:
    """Call the package: its errors, and a panic of its Rust code, are the file's fault."""
    try:
        return call(*values, **options)
    except (KeyboardInterrupt, SystemExit, MemoryError, CardError):
        raise
    except BaseException as problem:  # a PanicException is not an Exception
        pass_on(problem)
        reason = " ".join(str(problem).split())[:200] or type(problem).__name__
        raise CardError(
            f"the card's tokenizer cannot be used: {reason}; save it again with tokenizers"
        ) from None


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise CardError(f"the card's tokenizer is not valid JSON: {problem}") from None
    if not isinstance(table, dict) or not isinstance(table.get("model"), dict):
        raise CardError('the card\'s tokenizer is not a tokenizer.json: it has no "model"')
    return table


def _vocabulary(table: dict[str, Any]) -> Any:
    vocabulary = table["model"].get("vocab")
    return vocabulary if isinstance(vocabulary, dict | list) else {}


def _added(table: dict[str, Any]) -> dict[str, Any]:
    added = table.get("added_tokens")
    entries = added if isinstance(added, list) else []
    return {str(e.get("content")): e.get("id") for e in entries if isinstance(e, dict)}
