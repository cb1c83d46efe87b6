"""Turned channels: the same model, whose rows lose less to rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.weights.language.block_rounding import nearest8
from edgekit.generate.host.weights.language.decoder_weights import run_layer
from edgekit.generate.host.weights.language.rotated_model import RotatedModel, rotated_model
from edgekit.tensor_spec import Array
from tests.generate.targets.reference_decoder import reference_logits, tiny_model

TEXT = np.random.default_rng(3).integers(0, 80, 40).tolist()
EMBEDDING = "model.embed_tokens.weight"
KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "untied": {"tied_embedding": False},
    "qwen2, no power of 2": {"qkv_bias": True, "width": 72, "mlp_width": 80},
    "qwen3, odd blocks": {"qk_norm": True, "mlp_width": 100},
    "gemma": {"qk_norm": True, "output_norms": True, "activation": "gelu_tanh", "embedding_scale": 8.0},
}


def logits_of(turned: RotatedModel) -> Array:
    """What a target computes with such a model."""
    model, c = turned.model, turned.model.config

    def product(inputs: Array, *names: str) -> list[Array]:
        if names[0].endswith("down_proj.weight") and turned.before_down is not None:
            blocks = inputs.reshape(-1, len(turned.before_down)) @ turned.before_down
            inputs = blocks.reshape(inputs.shape)
        return [inputs @ model.weight(name).T for name in names]

    x = model.weight(EMBEDDING)[np.array(TEXT)][None] * np.float32(c.embedding_scale)
    for layer in range(c.layers):
        x = run_layer(model, layer, x, product)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + c.norm_eps) * model.weight("model.norm.weight")
    if turned.before_head is not None:
        x = x @ turned.before_head
    logits: Array = x[0] @ model.weight(EMBEDDING if c.tied_embedding else "lm_head.weight").T
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_stays_the_same(kind: str) -> None:
    model = tiny_model(**KINDS[kind])
    turned = rotated_model(model)
    assert (turned.before_down is None) == (kind == "qwen3, odd blocks")
    assert (turned.before_head is None) == (kind in ("untied", "gemma"))
    name = "model.layers.1.self_attn.o_proj.weight"
    assert np.abs(turned.model.weight(name) - model.weight(name)).max() > 0.1
    np.testing.assert_allclose(logits_of(turned), reference_logits(model, TEXT), atol=1e-3)


def with_large_columns(model: LanguageModel) -> LanguageModel:
    """The same model with what makes trained ones hard to round: columns 30 times as large as others."""

    def read(name: str) -> Array:
        array = model.weight(name).copy()
        if name.endswith(("layernorm.weight", "down_proj.weight")):
            array[..., :2] /= 30 if array.ndim == 1 else 1 / 30
        elif name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight")):
            array[:, :2] *= 30
        elif name.endswith("up_proj.weight"):
            array[:, :2] *= 30
            array[:2] /= 30
        return array

    return replace(model, read=read)


def test_whole_rows_lose_less_to_int8() -> None:
    model = with_large_columns(tiny_model())
    exact = reference_logits(tiny_model(), TEXT)
    np.testing.assert_allclose(reference_logits(model, TEXT), exact, atol=1e-4)

    def error(turned: RotatedModel) -> float:
        def read(name: str) -> Array:
            array = turned.model.weight(name)
            return nearest8(array, 0).floats() if array.ndim == 2 else array

        rounded = logits_of(turned._replace(model=replace(turned.model, read=read)))
        return float(((rounded - exact) ** 2).mean())

    assert error(rotated_model(model)) < 0.1 * error(RotatedModel(model, frozenset(), None, None))


def test_turns_are_the_same_each_time() -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    first, again = (rotated_model(tiny_model()).model.weight(name) for _ in range(2))
    np.testing.assert_array_equal(first, again)
