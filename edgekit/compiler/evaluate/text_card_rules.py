"""Checks that a card's tokenizer is that of its model, on the user's texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.card_rules import CardFinding
from edgekit.processing.card import Card
from edgekit.processing.inputs.text import TextInput
from edgekit.processing.text_preparation import tokenizer_of, tokens_of
from edgekit.processing.tokenizer import unknown_id, vocabulary_size
from edgekit.tensor_spec import Array

UNKNOWN_SHARE = 0.05
"""Largest share of unknown tokens. In 64 English sentences MiniLM's own tokenizer has none; without its
lower-casing it has .097."""
USED_SHARE = 0.9
"""Least size of the vocabulary relative to the embedding, whose rows are often rounded up, e.g. to 64."""


def check_texts(model: ir.Model, card: Card, samples: Sequence[Mapping[str, Array]]) -> Iterator[CardFinding]:
    """Check a card's tokenizer against the model's embedding and on texts.

    Args:
        model: The source model.
        card: Its card, with token ids.
        samples: The model's inputs for each text.
    """
    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)]
    ids = next(entry for entry in parts if entry.part == "ids")
    content = tokenizer_of(ids, card.files)
    size, rows = vocabulary_size(content), _embedding_rows(model, ids.name)
    line = f"{ids.tokenizer} of inputs.{ids.name}"
    if rows is not None and not USED_SHARE * rows <= size <= rows:
        yield CardFinding(
            f"{line} has {size} tokens, but the model's embedding {rows}: it is another model's tokenizer",
            size > rows,
        )
        return
    unknown = unknown_id(content)
    counted = [
        np.reshape(sample[ids.name], -1)[tokens_of(parts, sample, card.files).mask == 1] for sample in samples
    ]
    tokens = np.concatenate(counted) if counted else np.zeros(0, np.int64)
    count = int((tokens == unknown).sum()) if unknown is not None else 0
    if count > UNKNOWN_SHARE * len(tokens):
        yield CardFinding(
            f"{count} of {len(tokens)} tokens of the texts are unknown to {line}: it is not the model's, or "
            "the texts are in another language",
            False,
        )


def _embedding_rows(model: ir.Model, name: str) -> int | None:
    """Return the number of rows of the table that the token ids index; None if there is none."""
    value = next(one for one in model.graph.inputs if one.name == name)
    for node, index in value.uses():
        table = node.inputs[0]
        if node.op_type == "Gather" and index == 1 and table is not None and table.shape is not None:
            rows = table.shape[0]
            return rows if isinstance(rows, int) and table.is_initializer() else None
    return None
