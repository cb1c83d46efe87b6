"""From a text to a model's inputs: token ids, their mask and their segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.errors import CardError, UsageError
from edgekit.processing.inputs.text import PAD_FROM_TOKENIZER, TextInput
from edgekit.processing.tokenizer import padding_id, tokenize
from edgekit.tensor_spec import Array


class TextTokens(NamedTuple):
    """Tokens of a text in the input: ``mask`` int64 [tokens], 1 for a token and 0 for padding."""

    mask: Array


def prepare_text(
    entries: Sequence[TextInput], text: str | Sequence[str], files: Mapping[str, bytes]
) -> tuple[dict[str, Array], TextTokens]:
    """Turn a text into the inputs' arrays.

    Args:
        entries: The parts of the text; one is the ids.
        text: The text; if the card has ``pair``, two of them, or both in one str with a tab between.

    Raises:
        UsageError: the text is none, or too long; or the card has ``pair`` and they are not two.
        CardError: the tokenizer is absent or can't be used.
        MissingDependency: the ``tokenizers`` package is not installed.
    """
    ids = next(entry for entry in entries if entry.part == "ids")
    content = tokenizer_of(ids, files)
    first, second = _pair(text) if ids.pair else (text, None)
    tokens = tokenize(content, first, ids.tokens, ids.special_tokens, second)  # type: ignore[arg-type]
    pad_id = padding_id(content) if ids.pad_id == PAD_FROM_TOKENIZER else ids.pad_id
    return token_arrays(entries, ids, tokens.ids, tokens.types, pad_id)


def _pair(text: str | Sequence[str]) -> tuple[str, str]:
    parts = text.split("\t", 1) if isinstance(text, str) else text
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        raise UsageError("the model reads a pair of texts: pass a pair, or one str with a tab between them")
    return parts[0], parts[1]


def token_arrays(
    entries: Sequence[TextInput], ids: TextInput, numbers: Sequence[int], types: Sequence[int], pad_id: int
) -> tuple[dict[str, Array], TextTokens]:
    """Convert tokens to the inputs' arrays, padded."""
    missing = ids.tokens - len(numbers)
    ends = (0, missing) if ids.padding == "right" else (missing, 0)
    parts = {
        "ids": np.pad(np.array(numbers, np.int64), ends, constant_values=pad_id),
        "mask": np.pad(np.ones(len(numbers), np.int64), ends),
        "types": np.pad(np.array(types, np.int64), ends),
    }
    feeds = {entry.name: parts[entry.part].astype(entry.dtype).reshape(entry.shape) for entry in entries}
    return feeds, TextTokens(parts["mask"])


def tokens_of(
    entries: Sequence[TextInput], feeds: Mapping[str, Array], files: Mapping[str, bytes]
) -> TextTokens:
    """Return which tokens of prepared inputs are not padding, from the mask, or else from the ids."""
    mask = next((entry for entry in entries if entry.part == "mask"), None)
    if mask is not None:
        return TextTokens(feeds[mask.name].reshape(-1).astype(np.int64))
    ids = next(entry for entry in entries if entry.part == "ids")
    pad_id = padding_id(tokenizer_of(ids, files)) if ids.pad_id == PAD_FROM_TOKENIZER else ids.pad_id
    return TextTokens((feeds[ids.name].reshape(-1) != pad_id).astype(np.int64))


def tokenizer_of(ids: TextInput, files: Mapping[str, bytes]) -> bytes:
    """Return the content of the tokenizer that the ids input names.

    Raises:
        CardError: it is not there.
    """
    if ids.tokenizer not in files:
        raise CardError(
            f"the card's tokenizer, {ids.tokenizer}, was not loaded; load the card with its files"
        )
    return files[ids.tokenizer]
