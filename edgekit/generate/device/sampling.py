"""From a row of logits to the next token. Pure: the only state is the caller's random generator.

The order is that of Hugging Face's transformers: repetition penalty, what a grammar allows, temperature,
``top_k``, ``top_p``, ``min_p``, draw.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from edgekit.generate.device.options import GenerateOptions
from edgekit.tensor_spec import Array


def next_token(
    logits: Array,
    options: GenerateOptions,
    previous: Collection[int],
    draws: np.random.Generator,
    allowed: Array | None = None,
) -> int:
    """Choose the next token.

    Args:
        logits: float32 [vocabulary], finite or -inf; not changed.
        previous: Tokens of the prompt and the answer so far, for the repetition penalty.
        draws: Gives one number a token, and none where ``options.greedy``.
        allowed: bool [vocabulary], what a grammar allows; at least one token.

    Returns:
        The token; of equally likely ones, greedy takes the first.
    """
    row = logits
    if options.repetition_penalty != 1.0 and previous:
        row = penalized(row, previous, options.repetition_penalty)
    if allowed is not None:
        row = np.where(allowed, row, np.float32(-np.inf))
    if options.greedy:
        return int(row.argmax())
    tokens, weights = candidates(row, options)
    # By inversion: one number a token, whatever the options leave over.
    point = draws.random() * weights.sum()
    return int(tokens[min(int(np.searchsorted(weights.cumsum(), point, side="right")), len(tokens) - 1)])


def penalized(logits: Array, previous: Collection[int], penalty: float) -> Array:
    """Return a copy with tokens seen made less likely: positive logits divided, negative ones multiplied."""
    tokens = np.fromiter(previous, np.int64, len(previous))
    values = logits[tokens]
    row = logits.copy()
    row[tokens] = np.where(values > 0, values / penalty, values * penalty)
    return row


def candidates(logits: Array, options: GenerateOptions) -> tuple[Array, Array]:
    """Return the tokens that may be drawn, the likeliest first, and their weights.

    Returns:
        int64 [n] and float64 [n]; the weights are positive and need not sum to 1.
    """
    tokens = np.arange(logits.size)
    if 0 < options.top_k < logits.size:
        tokens = np.argpartition(logits, -options.top_k)[-options.top_k :]
    tokens = tokens[np.lexsort((tokens, -logits[tokens]))]
    scaled = logits[tokens].astype(np.float64)
    # The likeliest first: its weight is 1, and nothing overflows at any temperature.
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((scaled - scaled[0]) / options.temperature)
    if options.top_p < 1.0:
        # A token stays as long as those before it have less than top_p together: the first always does.
        before = weights.cumsum() - weights
        count = int(np.count_nonzero(before < options.top_p * weights.sum()))
        tokens, weights = tokens[:count], weights[:count]
    count = int(np.count_nonzero((weights >= options.min_p) & (weights > 0)))
    return tokens[:count], weights[:count]
