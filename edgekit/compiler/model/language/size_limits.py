"""Limits on a decoder's sizes, because a file may state any number."""

from __future__ import annotations

import math

from edgekit.compiler.model.language.language_model import DecoderConfig
from edgekit.errors import ModelError

LIMITS = {
    "layers": 512, "width": 65_536, "heads": 1024, "kv_heads": 1024, "head_size": 1024, "mlp_width": 524_288,
    "vocabulary": 1 << 20, "context_length": 1 << 27,
}  # fmt: skip
"""Far above the sizes of models with 4 billion parameters; low enough that products stay small numbers."""


def check_sizes(config: DecoderConfig, where: str) -> None:
    """Reject impossible sizes.

    Raises:
        ModelError: a size is impossible; the error names the first one.
    """
    for name, limit in LIMITS.items():
        size = getattr(config, name)
        if not 0 < size <= limit:
            raise ModelError(f"{where}: its {name} is {size}; it must be 1 to {limit}")
    if config.heads % config.kv_heads:
        raise ModelError(
            f"{where}: its {config.heads} heads are not a multiple of its {config.kv_heads} key-value heads"
        )
    if config.head_size % 2:
        raise ModelError(
            f"{where}: its head_size is {config.head_size}; the rotary embedding requires an even number"
        )
    for name in ("norm_eps", "rope_theta", "sliding_rope_theta", "attention_softcap", "logit_softcap"):
        value = getattr(config, name)
        if not (math.isfinite(value) and value >= 0) or (name == "rope_theta" and value < 1):
            raise ModelError(f"{where}: its {name} is {value}, which is not a valid value")
