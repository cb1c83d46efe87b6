"""The training of a draft: some layers of a language model learn to end its own texts as all of them do.

The draft reads with the model's own embedding and speaks with its own output matrix, which stay as they are.
It learns from texts that the model wrote itself, greedy and sampled, by the Kullback-Leibler divergence of
its next token from the model's at each of them (Hinton et al. 2015; for drafts Zhou et al. 2023, DistillSpec,
arXiv 2310.08461). Everything random follows from the seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import kl_div, log_softmax

from edgekit.compress.torch.decoder_module import EMBEDDING, HEAD, LAST_NORM, Cache, hidden, logits
from edgekit.compress.torch.graph_program import Tensor
from edgekit.compress.torch.training_loop import (
    AVERAGED,
    CHECKS,
    LARGEST_GRADIENT,
    WARM_UP,
    Moment,
    TrainingOptions,
    asked_to_stop,
)
from edgekit.compress.torch.training_state import TrainingState
from edgekit.errors import UsageError
from edgekit.model.language.language_model import DecoderConfig, LanguageModel

TOGETHER = 16
"""Texts that are written in one step."""


class Written(NamedTuple):
    """Texts of a model, all of one length, with what it thought at each token.

    Attributes:
        tokens: int64 [texts, tokens].
        states: What its last norm gave, float32 [texts, tokens, width].
        counts: bool [texts, tokens]: whether the token after it is learned; not what follows an end.
    """

    tokens: Tensor
    states: Tensor
    counts: Tensor

    def part(self, chosen: Any) -> Written:
        """Some of the texts."""
        return Written(self.tokens[chosen], self.states[chosen], self.counts[chosen])


def model_weights(model: LanguageModel) -> dict[str, Tensor]:
    """All weights of a model."""
    return {name: torch.from_numpy(np.array(model.weight(name))) for name in model.weight_names}


def write_texts(
    model: LanguageModel,
    weights: dict[str, Tensor],
    prompts: Sequence[Sequence[int]],
    length: int,
    seed: int,
    say: Callable[[int], None],
) -> Written:
    """The model's texts after these prompts, every other one greedy, the others sampled.

    Args:
        model, weights: Who writes.
        prompts: Tokens, all of one length.
        length: Tokens of a text with its prompt.
        seed: Of the draws.
        say: Called with the number of texts so far.
    """
    draws, parts = torch.Generator().manual_seed(seed), []
    stops = torch.tensor(model.stop_ids)
    for start in range(0, len(prompts), TOGETHER):
        tokens = torch.tensor([list(each) for each in prompts[start : start + TOGETHER]])
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
        parts.append(Written(tokens, torch.cat(states, 1), alive))
        say(min(start + TOGETHER, len(prompts)))
    return Written(*(torch.cat(list(each)) for each in zip(*parts, strict=True)))


def chosen_layers(layers: int, kept: int) -> list[int]:
    """Which layers a draft begins with: spread evenly, the first and the last among them.

    >>> chosen_layers(30, 4), chosen_layers(30, 1), chosen_layers(2, 2)
    ([0, 10, 19, 29], [0], [0, 1])
    """
    return [round(index * (layers - 1) / max(kept - 1, 1)) for index in range(kept)]


@dataclass(eq=False)
class DraftTraining:
    """A draft while it is trained.

    Attributes:
        config: Of the draft.
        weights: Of the draft; those of the layers and the last norm are trained.
        training: Texts that it learns from.
        validation: Texts that choose the best weights.
        options: Of the training.
    """

    config: DecoderConfig
    weights: dict[str, Tensor]
    training: Written
    validation: Written
    options: TrainingOptions

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        weights: dict[str, Tensor],
        kept: int,
        training: Written,
        validation: Written,
        options: TrainingOptions,
    ) -> DraftTraining:
        """A draft of so many of a model's layers."""
        config, own = replace(model.config, layers=kept), dict[str, Tensor]()
        places = chosen_layers(model.config.layers, kept)
        for name in config.weight_shapes():
            source = name
            if name.startswith("model.layers."):
                _, _, layer, rest = name.split(".", 3)
                source = f"model.layers.{places[int(layer)]}.{rest}"
            own[name] = weights[source] if name in (EMBEDDING, HEAD) else weights[source].clone()
        return cls(config, own, training, validation, options)

    def __post_init__(self) -> None:
        learned = [name for name in self.weights if name not in (EMBEDDING, HEAD)]
        assert LAST_NORM in learned
        self._parameters = [self.weights[name].requires_grad_() for name in learned]
        self._batch = min(self.options.batch, len(self.training.tokens))
        self.steps_per_epoch = len(self.training.tokens) // self._batch

    def run(
        self,
        state: TrainingState,
        report: Callable[[Moment], None],
        save: Callable[[TrainingState], None],
    ) -> bool:
        """Train from a state to the end, and keep the best weights.

        Returns:
            Whether it came to the end; False: it was interrupted (Ctrl-C).

        Raises:
            UsageError: the loss is not finite.
        """
        optimizer = torch.optim.AdamW(
            self._parameters, lr=self.options.learning_rate, weight_decay=self.options.weight_decay
        )
        if state.optimizer is not None:
            self._put(state.parameters)
            optimizer.load_state_dict(state.optimizer)
        else:
            state.averages = [each.detach().clone() for each in self._parameters]
            state.best = [each.clone() for each in state.averages]
            state.losses = [self.loss_of(self.validation)]
        begun = time.monotonic() - state.seconds
        with asked_to_stop() as stopped:
            while (before := self._progress(state)) < 1 and not stopped:
                loss = self._step(state, optimizer, before)
                state.seconds = time.monotonic() - begun
                now = self._progress(state)
                report(Moment(now, state.step / self.steps_per_epoch, state.seconds, loss))
                if math.floor(now * CHECKS) > math.floor(before * CHECKS):
                    self._check(state)
                    self._save(state, optimizer, save)
            if stopped:
                self._save(state, optimizer, save)
                self._check(state)
        self._put(state.best)
        return not stopped

    def loss_of(self, texts: Written) -> float:
        """Mean divergence from the model, in nats a token."""
        total = tokens = 0.0
        with torch.no_grad():
            for start in range(0, len(texts.tokens), self._batch):
                part = texts.part(slice(start, start + self._batch))
                count = int(part.counts.sum())
                total, tokens = total + count * self._loss(part).item(), tokens + count
        return total / max(tokens, 1)

    def agreement(self, texts: Written) -> float:
        """Share of the tokens at which its likeliest next one is the model's."""
        same = tokens = 0
        with torch.no_grad():
            for start in range(0, len(texts.tokens), self._batch):
                part = texts.part(slice(start, start + self._batch))
                own, wanted = self._rows(part)
                same += int((own.argmax(-1) == wanted.argmax(-1)).sum())
                tokens += len(own)
        return same / max(tokens, 1)

    def _rows(self, texts: Written) -> tuple[Tensor, Tensor]:
        """Logits of the draft and of the model where they count."""
        states = hidden(self.config, self.weights, texts.tokens)
        own = logits(self.config, self.weights, states[texts.counts])
        with torch.no_grad():
            return own, logits(self.config, self.weights, texts.states[texts.counts])

    def _loss(self, texts: Written) -> Tensor:
        own, wanted = self._rows(texts)
        return kl_div(log_softmax(own, -1), log_softmax(wanted, -1), reduction="batchmean", log_target=True)

    def _step(self, state: TrainingState, optimizer: Any, progress: float) -> float:
        epoch, place = divmod(state.step, self.steps_per_epoch)
        order = np.random.default_rng([self.options.seed, epoch]).permutation(len(self.training.tokens))
        indices = torch.from_numpy(order[place * self._batch : (place + 1) * self._batch])
        for group in optimizer.param_groups:
            rising = min((progress + 1e-3) / WARM_UP, 1.0)
            group["lr"] = self.options.learning_rate * rising * (1 + math.cos(math.pi * progress)) / 2
        optimizer.zero_grad()
        loss = self._loss(self.training.part(indices))
        found: float = loss.item()
        if not math.isfinite(found):
            raise UsageError(
                f"the training diverged at step {state.step}: its loss is {found}; lower the learning rate"
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, LARGEST_GRADIENT)
        optimizer.step()
        state.step += 1
        state.average(self._parameters, 1 / (1 + AVERAGED * state.step))
        return found

    def _check(self, state: TrainingState) -> None:
        now = [each.detach().clone() for each in self._parameters]
        self._put(state.averages)
        loss = self.loss_of(self.validation)
        if loss < state.best_loss:
            state.best = [each.clone() for each in state.averages]
        state.losses.append(loss)
        self._put(now)

    def _save(self, state: TrainingState, optimizer: Any, save: Callable[[TrainingState], None]) -> None:
        state.parameters = [each.detach().clone() for each in self._parameters]
        state.optimizer = optimizer.state_dict()
        save(state)

    def _put(self, tensors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, tensor in zip(self._parameters, tensors, strict=True):
                parameter.copy_(tensor)

    def _progress(self, state: TrainingState) -> float:
        return self.options.progress(state.step / self.steps_per_epoch, state.seconds)
