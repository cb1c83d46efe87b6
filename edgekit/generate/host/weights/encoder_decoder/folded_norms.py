"""An encoder-decoder whose norms have no weights: they are in the matrices that follow.

    y = (norm(x) * g + b) W^T + c    =>    y = norm(x) (W g)^T + (b W^T + c)

A norm's large weights would otherwise set the range of its whole row, which engines round to int8. The last
norm of the decoder keeps its weights: its matrix is the embedding too. Where keys have no bias, what b adds
to all keys alike changes no weight of attention. A norm after a sum (BART, Marian) keeps its weights as well:
its result is also added to what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from edgekit.generate.host.readers.encoder_decoder.config import (
    GATE,
    EncoderDecoderConfig,
    EncoderDecoderModel,
)
from edgekit.tensor_spec import Array

HEARD = ("encoder_attn.k_proj", "encoder_attn.v_proj")
"""Layers that follow the encoder's last norm."""
Model = TypeVar("Model", bound=EncoderDecoderModel)


def with_folded_norms(model: Model) -> Model:
    """Return the model with norms' weights in the matrices that follow; the same if norms follow sums."""
    if model.config.form.norms_after:
        return model
    before = _norms_before(model.config)
    folded, shapes = set(before.values()), model.config.weight_shapes()

    def read(name: str) -> Array:
        layer, _, kind = name.rpartition(".")
        if layer in folded:
            like = model.weight(name)
            return np.ones_like(like) if kind == "weight" else np.zeros_like(like)
        value = model.weight(name)
        if layer not in before:
            return value
        if kind == "weight":
            return value * model.weight(f"{before[layer]}.weight")
        if f"{before[layer]}.bias" not in shapes:
            return value
        bias: Array = value + model.weight(f"{layer}.weight") @ model.weight(f"{before[layer]}.bias")
        return bias

    return replace(model, read=read)


def _norms_before(config: EncoderDecoderConfig) -> Mapping[str, str]:
    """Return layer -> the norm before it."""
    norms = {}
    for part, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            prefix = f"{part}.layers.{layer}."
            for projection in "qkv":
                norms[f"{prefix}self_attn.{projection}_proj"] = f"{prefix}self_attn_layer_norm"
            norms |= {f"{prefix}{product}": f"{prefix}final_layer_norm" for product in ("fc1", GATE)}
            if part == "decoder":
                norms[f"{prefix}encoder_attn.q_proj"] = f"{prefix}encoder_attn_layer_norm"
                norms |= {f"{prefix}{projection}": "encoder.layer_norm" for projection in HEARD}
    return norms
