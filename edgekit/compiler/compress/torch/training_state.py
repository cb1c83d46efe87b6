"""Complete state of a training at some step, saved to resume it."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically


@dataclass
class TrainingState:
    """State of a training. Lists of parameters are in the module's order.

    Attributes:
        losses: Validation loss at each check; the first is before training.
        averages: Means of the last steps' parameters.
        best: Averages with the lowest validation loss.
        optimizer: State of the optimizer; None before the first step.
        learning_rate: Peak learning rate from now on.
        begun: Completed share of the training when this rate was chosen, 0 to 1.
    """

    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    averages: list[Tensor] = field(default_factory=list)
    best: list[Tensor] = field(default_factory=list)
    optimizer: Any = None
    parameters: list[Tensor] = field(default_factory=list)
    learning_rate: float = 0.0
    begun: float = 0.0

    @property
    def best_loss(self) -> float:
        return min(self.losses, default=math.inf)

    def average(self, parameters: list[Tensor], part: float) -> None:
        """Move the averages towards the parameters by a fraction of the distance."""
        for mean, parameter in zip(self.averages, parameters, strict=True):
            mean.lerp_(parameter.detach(), part)


def save_state(path: Path, state: TrainingState, key: str) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        key: Key of the training's data and models: only a training with the same key can resume it.
    """
    file = io.BytesIO()
    torch.save({"key": key, **vars(state)}, file)
    write_atomically(path, [file.getvalue()])


def load_state(path: Path, key: str) -> TrainingState:
    """Read a checkpoint, without executing code from the file.

    Raises:
        UsageError: the file does not exist, is damaged, or is of another training.
        OSError: the file can't be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"checkpoint {path} does not exist; start without --resume") from None
    try:
        table = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        saved = table.pop("key")
        state = TrainingState(**table)
    except Exception:  # of damaged bytes: PyTorch seeks to where they point, and its unpickler trusts them
        raise UsageError(
            f"{path} is not a checkpoint of edgekit model distil, or is damaged; delete it"
        ) from None
    if saved != key:
        raise UsageError(
            f"{path} belongs to another training (teacher, student, samples or options differ); start "
            "without --resume"
        )
    return state
