"""Training loop of a student: AdamW, a warm-up and a cosine, averaged weights, the best by validation.

Everything random follows from the seed and the number of the step. With a number of epochs, the same command
gives the same weights on the same machine. With a limit in minutes, the elapsed time determines the end and
the learning rate.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from edgekit.compiler.compress.picture_augmentation import PictureAugmentation
from edgekit.compiler.compress.teacher import Teacher
from edgekit.compiler.compress.torch.distillation_loss import DistillationLoss, Term
from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.compiler.compress.torch.onnx_module import OnnxModule
from edgekit.compiler.compress.torch.training_state import TrainingState
from edgekit.compiler.compress.training_samples import TrainingSamples
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array

CHECKS = 20
"""How often in a training the validation loss is taken, and a checkpoint is saved."""
WARM_UP = 0.02
"""Part of the training in which the learning rate rises."""
AVERAGED = 0.05
"""Weights are averaged over about this part of the steps so far (an exponential mean)."""
TRIAL, LATEST = 1 / 40, 0.5
"""The learning rate may fall after this part of a training, and up to its half."""
LOWERED, LEAST = 1 / 3, 1e-4
"""A lower learning rate is this part of the one before; below this part of the first it is not at fault."""
LARGEST_GRADIENT = 1.0
"""Gradients are scaled down to this norm."""
WEIGHT_DECAY = 1e-4
"""AdamW's, of weights of two axes or more."""
NORMALIZED_BY = 256
"""Samples by which the loss is normalized."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options of a student's training.

    Attributes:
        minutes: Time limit in minutes; None for no limit.
        lowered: Whether the rate may be lowered: if the validation loss is higher than before training,
            training restarts with a third of it.
    """

    epochs: float | None = None
    minutes: float | None = None
    batch: int = 128
    learning_rate: float = 2e-3
    lowered: bool = False
    seed: int = 0

    def progress(self, epochs: float, seconds: float) -> float:
        """Return the completed share of the training, 0 to 1."""
        parts = [0.0]
        if self.epochs is not None:
            parts.append(epochs / self.epochs)
        if self.minutes is not None:
            parts.append(seconds / (60 * self.minutes))
        return min(max(parts), 1.0)


@dataclass(frozen=True)
class Moment:
    """Progress of a training, for its progress bar.

    Attributes:
        progress: Completed share, 0 to 1.
    """

    progress: float
    epochs: float
    seconds: float
    loss: float


@contextmanager
def asked_to_stop() -> Iterator[list[int]]:
    """Yield a list that Ctrl-C (SIGINT) appends to, in the main thread; a second one interrupts."""
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def stop(number: int, frame: object) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)


class TrainingLoop(ABC):
    """Base class of trainings; a subclass defines the loss."""

    def __init__(self, parameters: list[Tensor], samples: int, options: TrainingOptions) -> None:
        self._parameters, self._samples, self._options = parameters, samples, options
        self._batch = min(options.batch, samples)
        self.steps_per_epoch = samples // self._batch

    @abstractmethod
    def _loss_of(self, indices: Array, epoch: int, place: int) -> Tensor:
        """Compute the loss of a step.

        Args:
            epoch, place: Epoch and position of the step, which seed random choices together with the seed.
        """

    @abstractmethod
    def _validation_loss(self) -> float:
        """Compute the loss that chooses the best weights."""

    def run(
        self,
        state: TrainingState,
        report: Callable[[Moment], None],
        save: Callable[[TrainingState], None],
    ) -> bool:
        """Train from a state to the end, and leave the parameters with the best weights.

        Args:
            state: A new one, or a saved one. It is changed.
            save: Called after each check, and when the training is stopped.

        Returns:
            Whether the training finished; False if it was interrupted (Ctrl-C).

        Raises:
            UsageError: the loss is not finite, and the learning rate may not be lowered.
        """
        optimizer = self._restore(state)
        begun = time.monotonic() - state.seconds
        recent = math.nan
        with asked_to_stop() as stopped:
            while (progress := self._progress(state)) < 1 and not stopped:
                loss = self._step(state, optimizer, progress)
                recent = loss if math.isnan(recent) else 0.95 * recent + 0.05 * loss
                state.seconds = time.monotonic() - begun
                report(Moment(
                    self._progress(state), state.step / self.steps_per_epoch, state.seconds, recent
                ))  # fmt: skip
                if self._is_due(state, progress, loss):
                    self._check(state)
                    if self._is_astray(state, loss):
                        optimizer, recent = self._lowered(state), math.nan
                    self._save(state, optimizer, save)
            if stopped:
                # Saved before the check: what is resumed comes to the weights of what was not stopped.
                self._save(state, optimizer, save)
                self._check(state)
        self._put(state.best)
        return not stopped

    def _is_due(self, state: TrainingState, before: float, loss: float) -> bool:
        """Return whether a check is due: one of CHECKS, the first of a learning rate, or after a fault."""
        now, trial = self._progress(state), state.begun + TRIAL
        first = self._options.lowered and before < trial <= now
        return first or not math.isfinite(loss) or math.floor(now * CHECKS) > math.floor(before * CHECKS)

    def _is_astray(self, state: TrainingState, loss: float) -> bool:
        """Return whether the learning rate was too high: a loss is not finite, or the validation loss is
        higher than before training.

        Raises:
            UsageError: the loss is not finite, and the rate may not be lowered.
        """
        minimum = LEAST * self._options.learning_rate
        may = self._options.lowered and self._progress(state) <= LATEST and state.learning_rate >= minimum
        if not may and not math.isfinite(loss):
            raise UsageError(
                f"the training diverged at step {state.step}: its loss is {loss}; lower the learning rate"
            )
        return may and not (math.isfinite(loss) and state.losses[-1] <= state.losses[0])

    def _lowered(self, state: TrainingState) -> Any:
        self._put(state.best)
        state.averages = [weight.clone() for weight in state.best]
        state.learning_rate *= LOWERED
        state.begun = self._progress(state)
        return self._optimizer()

    def _save(self, state: TrainingState, optimizer: Any, save: Callable[[TrainingState], None]) -> None:
        state.parameters = [parameter.detach().clone() for parameter in self._parameters]
        state.optimizer = optimizer.state_dict()
        save(state)

    def _step(self, state: TrainingState, optimizer: Any, progress: float) -> float:
        epoch, place = divmod(state.step, self.steps_per_epoch)
        order = np.random.default_rng([self._options.seed, epoch]).permutation(self._samples)
        indices = order[place * self._batch : (place + 1) * self._batch]
        for group in optimizer.param_groups:
            rising = min((progress - state.begun + 1e-3) / WARM_UP, 1.0)
            group["lr"] = state.learning_rate * rising * (1 + math.cos(math.pi * progress)) / 2
        optimizer.zero_grad()
        loss = self._loss_of(indices, epoch, place)
        value: float = loss.item()
        if not math.isfinite(value):
            return value
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, LARGEST_GRADIENT)
        optimizer.step()
        state.step += 1
        state.average(self._parameters, 1 / (1 + AVERAGED * state.step))
        return value

    def _check(self, state: TrainingState) -> None:
        now = [tensor.detach().clone() for tensor in self._parameters]
        self._put(state.averages)
        loss = self._validation_loss()
        if loss < state.best_loss:
            state.best = [tensor.clone() for tensor in state.averages]
        state.losses.append(loss)
        self._put(now)

    def _progress(self, state: TrainingState) -> float:
        return self._options.progress(state.step / self.steps_per_epoch, state.seconds)

    def _optimizer(self) -> Any:
        decayed = [parameter for parameter in self._parameters if parameter.ndim > 1]
        others = [parameter for parameter in self._parameters if parameter.ndim <= 1]
        groups = [
            {"params": decayed, "weight_decay": WEIGHT_DECAY},
            {"params": others, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self._options.learning_rate)

    def _restore(self, state: TrainingState) -> Any:
        optimizer = self._optimizer()
        if state.optimizer is not None:
            self._put(state.parameters)
            optimizer.load_state_dict(state.optimizer)
            return optimizer
        state.learning_rate = self._options.learning_rate
        state.averages = [tensor.detach().clone() for tensor in self._parameters]
        state.best = [tensor.clone() for tensor in state.averages]
        state.losses = [self._validation_loss()]
        return optimizer

    def _put(self, tensors: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for parameter, tensor in zip(self._parameters, tensors, strict=True):
                parameter.copy_(tensor)


class Training(TrainingLoop):
    """Training of a module on a teacher's outputs.

    Args:
        module: The student; its parameters are changed.
        names: Inputs of the teacher -> those of the student.
    """

    def __init__(
        self,
        module: OnnxModule,
        names: Mapping[str, str],
        teacher: Teacher,
        terms: Sequence[Term],
        training: TrainingSamples,
        validation: TrainingSamples,
        augmentation: PictureAugmentation,
        options: TrainingOptions,
    ) -> None:
        super().__init__([p for p in module.parameters() if p.requires_grad], len(training), options)
        self._module, self._names, self._teacher = module, names, teacher
        self._training, self._validation, self._augmentation = training, validation, augmentation
        self._student_values = tuple(term.student for term in terms)
        some = range(min(NORMALIZED_BY, len(training)))
        self._loss = DistillationLoss(terms, _tensors(teacher.answers(training.batch(list(some)), some)))
        self._judged: list[tuple[dict[str, Array], Mapping[str, Tensor]]] = []
        for start in range(0, len(validation), self._batch):
            batch = validation.batch(list(range(start, min(start + self._batch, len(validation)))))
            self._judged.append((batch, _tensors(teacher.answers(batch))))

    def _loss_of(self, indices: Array, epoch: int, place: int) -> Tensor:
        batch = self._training.batch(indices)
        if self._augmentation:
            batch = self._augmentation(batch, np.random.default_rng([self._options.seed, epoch, place]))
            answers = self._teacher.answers(batch)
        else:
            answers = self._teacher.answers(batch, indices.tolist())
        return self._loss(self._run(batch), _tensors(answers))

    def _run(self, batch: Mapping[str, Array]) -> Mapping[str, Tensor]:
        feeds = {self._names[name]: torch.from_numpy(array) for name, array in batch.items()}
        outputs: Mapping[str, Tensor] = self._module(feeds, self._student_values)
        return outputs

    def _validation_loss(self) -> float:
        total = 0.0
        with torch.no_grad():
            for batch, answers in self._judged:
                count = len(next(iter(batch.values())))
                total += count * self._loss(self._run(batch), answers).item()
        return total / len(self._validation)


def _tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
