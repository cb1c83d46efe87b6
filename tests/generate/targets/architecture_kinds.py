"""Tiny configurations of each kind of architecture: changes for ``tiny_model``."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "untied": {"tied_embedding": False},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "smollm3": {"unrotated_layers": (False, True)},
    "gemma": {
        "qk_norm": True, "output_norms": True, "activation": "gelu_tanh", "embedding_scale": 8.0,
        "attention_scale": 0.3, "attention_softcap": 5.0, "logit_softcap": 7.0, "sliding_window": 9,
        "sliding_layers": (True, False), "sliding_rope_theta": 100.0,
    },
}  # fmt: skip
EXPERT_KINDS: dict[str, dict[str, Any]] = {
    "qwen3moe": {"qk_norm": True, "experts": 8, "picked_experts": 3, "normalized_routing": True},
    "olmoe": {"qk_norm": True, "whole_qk_norm": True, "experts": 8, "picked_experts": 3},
}
"""Those with experts, which not every target computes."""
