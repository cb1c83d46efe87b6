"""Tokens of an encoder-decoder as a text, and a text that is written in parts.

Each part is a run of the model: its prompt is the text so far, and the model continues after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.errors import EngineError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.predictions.text2text import WrittenText
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.processing.text2text_options import Text2TextOptions
from edgekit.processing.text_preparation import prepare_text, tokenizer_of
from edgekit.processing.tokenizer import token_texts, tokenize
from edgekit.processing.transcripts.words import spelled_text
from edgekit.tensor_spec import Array

PART_TOKENS = 8
"""Tokens of a run: a text is shown, cancelled, or continued by another engine after so many."""


def written_text(
    outputs: Outputs, options: Text2TextOptions, placed: Any, labels: Sequence[str] = ()
) -> WrittenText:
    """``tokens`` int64 [1, n], padded with -1.

    Args:
        placed: Not used.
        labels: Text of each token.

    Raises:
        EngineError: the output has another shape.
    """
    tokens = outputs["tokens"]
    if tokens.ndim != 2 or len(tokens) != 1:
        raise EngineError(f"tokens are [1, n], but the output is {list(tokens.shape)}")
    new = [int(token) for token in tokens[0] if token >= 0]
    return _written(new, options, labels)


def _written(
    tokens: Sequence[int], options: Text2TextOptions, labels: Sequence[str], reason: Any = "", length: int = 0
) -> WrittenText:
    text = spelled_text(tokens, labels, options.spelling, frozenset(options.special))
    if not reason:
        text = text.rstrip("\ufffd")  # the rest of a character is in the tokens that follow
    return WrittenText(text, tuple(tokens), reason, length)


def write_text(
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    card: Card,
    text: str,
    options: Text2TextOptions,
) -> Iterator[WrittenText]:
    """Write a text from another one; yield the text so far after each part.

    Raises:
        UsageError: the text has more tokens than the model reads, or ``max_tokens`` is more than it writes.
        EngineError: the engine failed, or its outputs do not fit.
    """
    entries = [entry for entry in card.sources() if isinstance(entry, TextInput)]
    ids = next(entry for entry in entries if entry.part == "ids")
    length = len(tokenize(tokenizer_of(ids, card.files), text, ids.tokens + 1, ids.special_tokens).ids)
    if length > ids.tokens:
        raise UsageError(
            f"the text has more than {ids.tokens} tokens, which is the most that {card.title} reads: pass it "
            "in parts, e.g. by sentence, or build the model with a larger context"
        )
    feeds, labels = prepare_text(entries, text, card.files)[0], token_texts(card.files[options.tokenizer])
    prompt, limit = (np.full_like(card.constants()[name], -1) for name in ("prompt", "limit"))
    capacity = prompt.shape[1] - 1
    if options.max_tokens > capacity:
        raise UsageError(f"max_tokens is {options.max_tokens}; {card.title} writes at most {capacity}")
    tokens, longest = list[int](), options.max_tokens or capacity
    prompt[0, 0] = options.start
    reason = ""
    while not reason:
        limit[0] = min(PART_TOKENS, longest - len(tokens))
        outputs = run({**feeds, "prompt": prompt, "limit": limit})
        new = [int(token) for token in outputs["tokens"][0] if token >= 0]
        tokens += new
        reason = "stop" if len(new) < limit[0] else "length" if len(tokens) >= longest else ""
        yield _written(tokens, options, labels, reason, length)
        prompt = prompt.copy()
        prompt[0, 1 : 1 + len(tokens)] = tokens


DECODERS: Mapping[str, Decoder] = {
    "tokens": Decoder(
        Text2TextOptions, written_text, ("tokens",), optional_roles=("logits", "figures"), whole=write_text
    )
}
