"""Memory that the build of a language model needs, with the weights as float32.

weights       (targets + DECODER_COPIES) x weights               variants, constants, engine, file pages
cache         CACHE_COPIES    x keys and values of the context
logits        LOGIT_COPIES    x a window's logits in float64     of which perplexity is judged
"""

from __future__ import annotations

import math

from edgekit.generate.host.readers.language.language_model import DecoderConfig

DECODER_COPIES, CACHE_COPIES, LOGIT_COPIES = 3, 4, 4


def decoder_need(config: DecoderConfig, targets: int, context: int, window: int) -> int:
    """Estimate the bytes that a language model's build needs beyond what its file needs.

    Args:
        config: The sizes of the model.
        targets: Number of targets that it is built for.
        context: Maximum context length in tokens.
        window: Number of tokens that are judged at one time.
    """
    weights = 4 * sum(math.prod(shape) for shape in config.weight_shapes().values())
    cache = 2 * 4 * config.layers * config.kv_heads * config.head_size * context
    return (
        (targets + DECODER_COPIES) * weights
        + CACHE_COPIES * cache
        + LOGIT_COPIES * 8 * window * config.vocabulary
    )
