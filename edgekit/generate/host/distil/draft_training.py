"""Training of a draft: some layers of a language model learn to continue its texts like the whole model.

The draft uses the model's own embedding and its own output matrix, which are not changed. It learns
from texts that the model wrote, greedy and sampled, by the Kullback-Leibler divergence of its next token from
the model's at each token (Hinton et al. 2015; for drafts Zhou et al. 2023, DistillSpec, arXiv 2310.08461).
Everything random follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import kl_div, log_softmax, scaled_dot_product_attention, silu

from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.compiler.compress.torch.training_loop import TrainingLoop, TrainingOptions
from edgekit.generate.host.readers.language.language_model import DecoderConfig, LanguageModel
from edgekit.tensor_spec import Array

# Decoder in PyTorch, for training: llama's form with the differences of qwen2 and qwen3.
#
# Formulas are those of ``edgekit/generate/host/readers/language/reference_decoder.py``.

EMBEDDING, HEAD, LAST_NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
Weights = Mapping[str, Tensor]
"""Weights by their names in ``DecoderConfig.weight_shapes``."""
Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, [texts, kv_heads, tokens, head_size]; empty before the first call."""


def hidden(config: DecoderConfig, weights: Weights, tokens: Tensor, cache: Cache | None = None) -> Tensor:
    """Compute the output of the last norm for every token.

    Args:
        tokens: int64 [texts, tokens], all of one length.
        cache: Cache of the preceding tokens, which is extended; then one token at a time, after the first
            call. None if the texts begin here.

    Returns:
        float32 [texts, tokens, width].
    """
    x = weights[EMBEDDING][tokens] * config.embedding_scale
    start = cache[0][0].shape[2] if cache else 0
    for layer in range(config.layers):
        prefix = f"model.layers.{layer}."
        y = _norm(config, x, weights[f"{prefix}input_layernorm.weight"])
        y = _attention(config, weights, layer, y, start, cache)
        x = x + y @ weights[f"{prefix}self_attn.o_proj.weight"].T
        y = _norm(config, x, weights[f"{prefix}post_attention_layernorm.weight"])
        gate = silu(y @ weights[f"{prefix}mlp.gate_proj.weight"].T)
        up_proj = y @ weights[f"{prefix}mlp.up_proj.weight"].T
        x = x + (gate * up_proj) @ weights[f"{prefix}mlp.down_proj.weight"].T
    return _norm(config, x, weights[LAST_NORM])


def logits(config: DecoderConfig, weights: Weights, rows: Tensor) -> Tensor:
    """Compute the logits of rows of ``hidden``, float32 [..., vocabulary]."""
    return rows @ weights[EMBEDDING if config.tied_embedding else HEAD].T


def _attention(
    config: DecoderConfig, weights: Weights, layer: int, x: Tensor, start: int, cache: Cache | None
) -> Tensor:
    texts, count, _ = x.shape
    parts = {}
    for name in "qkv":
        prefix = f"model.layers.{layer}.self_attn.{name}"
        y = x @ weights[f"{prefix}_proj.weight"].T
        if config.qkv_bias:
            y = y + weights[f"{prefix}_proj.bias"]
        y = y.reshape(texts, count, -1, config.head_size)
        if config.qk_norm and name != "v":
            y = _norm(config, y, weights[f"{prefix}_norm.weight"])
        parts[name] = y.transpose(1, 2)
    q, k = (_rotated(config, parts[name], start) for name in "qk")
    v = parts["v"]
    if cache is not None:
        if len(cache) > layer:
            k, v = torch.cat([cache[layer][0], k], 2), torch.cat([cache[layer][1], v], 2)
            cache[layer] = k, v
        else:
            cache.append((k, v))
    shared = config.heads // config.kv_heads
    attended = scaled_dot_product_attention(
        q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1), is_causal=start == 0,
        scale=config.attention_scale,
    )  # fmt: skip
    return attended.transpose(1, 2).reshape(texts, count, -1)


def _rotated(config: DecoderConfig, heads: Tensor, start: int) -> Tensor:
    """Rotate heads [texts, heads, tokens, head_size] by their positions."""
    positions = torch.arange(start, start + heads.shape[2], dtype=torch.float64)
    angles = positions[:, None] * torch.from_numpy(config.inverse_frequencies())
    cos, sin = angles.cos().float(), angles.sin().float()
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _norm(config: DecoderConfig, x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.norm_eps) * weight


TOGETHER = 16
"""Texts that are written in one step."""


class TrainingTexts(NamedTuple):
    """Texts of a model, all of one length, with its states at each token.

    Attributes:
        states: Outputs of its last norm, float32 [texts, tokens, width].
        counts: bool [texts, tokens]: whether the next token is learned; False after the end of a text.
    """

    tokens: Tensor
    states: Tensor
    counts: Tensor

    def part(self, chosen: Any) -> TrainingTexts:
        """Return some of the texts."""
        return TrainingTexts(self.tokens[chosen], self.states[chosen], self.counts[chosen])


def model_weights(model: LanguageModel) -> dict[str, Tensor]:
    """Return all weights of a model."""
    return {name: torch.from_numpy(np.array(model.weight(name))) for name in model.weight_names}


def write_texts(
    model: LanguageModel,
    weights: dict[str, Tensor],
    prompts: Sequence[Sequence[int]],
    length: int,
    seed: int,
    notify: Callable[[int], None],
) -> TrainingTexts:
    """Generate the model's texts for these prompts, every other one greedy, the others sampled.

    Args:
        prompts: Tokens of the prompts, all of one length.
        length: Number of tokens of a text with its prompt.
        notify: Called with the number of texts so far.
    """
    draws, parts = torch.Generator().manual_seed(seed), []
    stops = torch.tensor(model.stop_ids)
    for start in range(0, len(prompts), TOGETHER):
        tokens = torch.tensor([list(sequence) for sequence in prompts[start : start + TOGETHER]])
        greedy = torch.arange(len(tokens)) % 2 == 0
        cache: Cache = []
        with torch.no_grad():
            states = [hidden(model.config, weights, tokens, cache)]
            while tokens.shape[1] < length:
                row = logits(model.config, weights, states[-1][:, -1])
                drawn = torch.multinomial(row.softmax(-1), 1, generator=draws)[:, 0]
                tokens = torch.cat([tokens, torch.where(greedy, row.argmax(-1), drawn)[:, None]], 1)
                states.append(hidden(model.config, weights, tokens[:, -1:], cache))
        ended = torch.isin(tokens[:, len(prompts[0]) :], stops).cumsum(1) > 0
        alive = torch.cat([torch.ones(len(tokens), len(prompts[0]), dtype=torch.bool), ~ended], 1)
        parts.append(TrainingTexts(tokens, torch.cat(states, 1), alive))
        notify(min(start + TOGETHER, len(prompts)))
    return TrainingTexts(*(torch.cat(list(sequence)) for sequence in zip(*parts, strict=True)))


def chosen_layers(layers: int, layer_count: int) -> list[int]:
    """Choose the layers that a draft starts from: evenly spread, with the first and the last.

    >>> chosen_layers(30, 4), chosen_layers(30, 1), chosen_layers(2, 2)
    ([0, 10, 19, 29], [0], [0, 1])
    """
    return [round(index * (layers - 1) / max(layer_count - 1, 1)) for index in range(layer_count)]


class DraftTraining(TrainingLoop):
    """Training loop of a draft.

    Args:
        weights: Weights of the draft; those of the layers and the last norm are trained.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: dict[str, Tensor],
        training: TrainingTexts,
        validation: TrainingTexts,
        options: TrainingOptions,
    ) -> None:
        learned = [name for name in weights if name not in (EMBEDDING, HEAD)]
        super().__init__([weights[name].requires_grad_() for name in learned], len(training.tokens), options)
        self.config, self.weights = config, weights
        self._training, self._validation = training, validation

    @classmethod
    def from_model(
        cls,
        model: LanguageModel,
        weights: dict[str, Tensor],
        layer_count: int,
        training: TrainingTexts,
        validation: TrainingTexts,
        options: TrainingOptions,
    ) -> DraftTraining:
        """Create a draft from ``layer_count`` of a model's layers."""
        config, draft_weights = replace(model.config, layers=layer_count), dict[str, Tensor]()
        places = chosen_layers(model.config.layers, layer_count)
        for name in config.weight_shapes():
            source = name
            if name.startswith("model.layers."):
                _, _, layer, rest = name.split(".", 3)
                source = f"model.layers.{places[int(layer)]}.{rest}"
            draft_weights[name] = weights[source] if name in (EMBEDDING, HEAD) else weights[source].clone()
        return cls(config, draft_weights, training, validation, options)

    def loss_of(self, texts: TrainingTexts) -> float:
        """Compute the mean divergence from the model, in nats per token."""
        total = tokens = 0.0
        with torch.no_grad():
            for start in range(0, len(texts.tokens), self._batch):
                part = texts.part(slice(start, start + self._batch))
                count = int(part.counts.sum())
                total, tokens = total + count * self._loss(part).item(), tokens + count
        return total / max(tokens, 1)

    def agreement(self, texts: TrainingTexts) -> float:
        """Compute the share of tokens at which its likeliest next token is the model's."""
        same = tokens = 0
        with torch.no_grad():
            for start in range(0, len(texts.tokens), self._batch):
                part = texts.part(slice(start, start + self._batch))
                draft_logits, model_logits = self._rows(part)
                same += int((draft_logits.argmax(-1) == model_logits.argmax(-1)).sum())
                tokens += len(draft_logits)
        return same / max(tokens, 1)

    def _rows(self, texts: TrainingTexts) -> tuple[Tensor, Tensor]:
        states = hidden(self.config, self.weights, texts.tokens)
        draft_logits = logits(self.config, self.weights, states[texts.counts])
        with torch.no_grad():
            return draft_logits, logits(self.config, self.weights, texts.states[texts.counts])

    def _loss(self, texts: TrainingTexts) -> Tensor:
        draft, model = self._rows(texts)
        return kl_div(log_softmax(draft, -1), log_softmax(model, -1), reduction="batchmean", log_target=True)

    def _loss_of(self, indices: Array, epoch: int, place: int) -> Tensor:
        return self._loss(self._training.part(torch.from_numpy(indices)))

    def _validation_loss(self) -> float:
        return self.loss_of(self._validation)
