"""Rules and special tokens of an encoder-decoder's texts, from ``generation_config.json`` and
``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.compiler.model.hugging_face_folder import read_json
from edgekit.errors import ModelError
from edgekit.generate.device.token_rules import TextRules
from edgekit.tensor_spec import Json

WORDS_LIMIT = 4096
"""Most forbidden tokens, or sequences of them."""
UNSUPPORTED = {
    "repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0,
    "sequence_bias": None, "num_beam_groups": 1, "penalty_alpha": 0.0,
}  # fmt: skip
"""Settings that change a greedy text, and the value that does not."""


def generation_settings(table: Mapping[str, Json], folder: Path) -> dict[str, Json]:
    """Return the settings of ``config.json``, replaced by those of ``generation_config.json`` if it exists.

    Args:
        table: Content of ``config.json``.

    Raises:
        ModelError: the file is damaged.
    """
    return {**table, **read_json(folder / "generation_config.json", needed=False)}


def text_rules(settings: Mapping[str, Json], vocabulary: int, folder: Path) -> TextRules:
    """Return the rules.

    Args:
        settings: Keys of ``generation_config.json`` in transformers; each may be absent.

    Raises:
        ModelError: a setting is malformed, or changes texts in a way that EdgeKit does not support.
    """
    for key, neutral in UNSUPPORTED.items():
        if settings.get(key) not in (None, neutral):
            raise ModelError(
                f"{folder}: generation_config.json has {key} = {str(settings[key])[:20]}, which is not "
                "supported; remove it to build the model without"
            )
    ends, forced = settings.get("eos_token_id"), settings.get("forced_bos_token_id")
    words = settings.get("bad_words_ids") or []
    if not isinstance(words, list) or len(words) > WORDS_LIMIT or not all(map(_are_tokens, words)):
        raise ModelError(f"{folder}: bad_words_ids must be at most {WORDS_LIMIT} lists of tokens")
    single = [word[0] for word in words if len(word) == 1]
    added = _length(settings, "min_new_tokens", folder)
    rules = TextRules(
        ends=_checked(ends if isinstance(ends, list) else [ends], "eos_token_id", folder),
        suppressed=(*tokens_of(settings, "suppress_tokens", folder), *single),
        suppressed_first=tokens_of(settings, "begin_suppress_tokens", folder),
        bad_words=tuple(tuple(word) for word in words if len(word) > 1),
        forced_first=-1 if forced is None else token_of(settings, "forced_bos_token_id", vocabulary, folder),
        shortest=max(_length(settings, "min_length", folder), added + 1 if added else 0),
        repeated_phrase=_length(settings, "no_repeat_ngram_size", folder),
    )
    try:
        rules.check(vocabulary)
    except ValueError as problem:
        raise ModelError(f"{folder}: {problem}; the settings and the model do not belong together") from None
    return rules


def token_of(settings: Mapping[str, Json], key: str, vocabulary: int, folder: Path) -> int:
    """Return a special token.

    Raises:
        ModelError: it is absent or not in the vocabulary.
    """
    token: Any = settings.get(key)
    if type(token) is not int or not 0 <= token < vocabulary:
        raise ModelError(
            f"{folder}: config.json: {key} is {str(token)[:20]}; it must be a token from 0 below {vocabulary}"
        )
    return token


def _length(settings: Mapping[str, Json], key: str, folder: Path) -> int:
    length: Any = settings.get(key)
    if length is None:
        return 0
    if type(length) is not int or not 0 <= length <= 1 << 16:
        raise ModelError(f"{folder}: {key} is {str(length)[:20]}; it must be a whole number from 0")
    return length


def tokens_of(
    settings: Mapping[str, Json], key: str, location: Path | str, smallest: int = 0
) -> tuple[int, ...]:
    """Return a list of tokens, () if it is absent, without those below 0.

    Args:
        settings: Keys of ``generation_config.json``.
        key: One of them.
        location: Begin of the error's text.
        smallest: Least token. Whisper's lists may have -1, which stands for a list of the program that reads
            it.

    Raises:
        ModelError: it is something else.
    """
    tokens: Any = settings.get(key)
    return () if tokens is None else _checked(tokens, key, location, smallest)


def _checked(tokens: Any, key: str, location: Path | str, smallest: int = 0) -> tuple[int, ...]:
    if not _are_tokens(tokens, smallest):
        raise ModelError(f"{location}: {key} must be a list of at most {WORDS_LIMIT} tokens")
    return tuple(token for token in tokens if token >= 0)


def _are_tokens(tokens: Any, smallest: int = 0) -> bool:
    if not isinstance(tokens, list) or len(tokens) > WORDS_LIMIT:
        return False
    return all(type(token) is int and token >= smallest for token in tokens)
