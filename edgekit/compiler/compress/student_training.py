"""Training of a student on a teacher's outputs: the task and the result.

float student, or where a target's int8 rounds it -> training loop (PyTorch) -> float or Q/DQ graphs
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.int8_placement import Int8Placement
from edgekit.compiler.compress.picture_augmentation import PictureAugmentation
from edgekit.compiler.compress.teacher import Teacher
from edgekit.compiler.compress.training_samples import TrainingSamples
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.system.formats.plain_text import duration
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.compiler.compress.torch.distillation_loss import Term
    from edgekit.compiler.compress.torch.training_loop import Moment, TrainingOptions
    from edgekit.processing.card import Card

FEATURE_WEIGHT = 1.0
BAR = 24
"""Characters of the progress bar."""
BATCH = 64
"""Samples of one step ..."""
ACTIVATION_BYTES = 2 << 30
"""... as far as their values take no more memory than this."""
SIZED_BY = 64
"""Samples by which the size of an input is measured."""


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """Student, teacher, and the samples to train on.

    Attributes:
        student: The canonical student, with float weights.
        names: Input and output names of the teacher -> those of the student.
        features: Whether intermediate values of both graphs are compared too.
        placements: Target -> placement of its int8 rounding in the student; empty to train in float.
        digest: Digest of all samples, for the checkpoint.
    """

    teacher: ir.Model
    student: ir.Model
    names: Mapping[str, str]
    card: Card | None
    training: Sequence[Sample]
    validation: Sequence[Sample]
    augmentation: PictureAugmentation
    features: bool = False
    placements: Mapping[str, Int8Placement] = field(default_factory=dict)
    digest: str = ""


@dataclass(frozen=True, eq=False)
class TrainedStudent:
    """Result of a training.

    Attributes:
        models: Target -> the student for its int8, with Q/DQ pairs; "" -> in float.
        losses: Validation loss at each check; the first is before training.
        learning_rate: Peak learning rate, after any lowering.
        finished: Whether the training finished; False if it was stopped, with the best weights so far.
    """

    models: Mapping[str, ir.Model]
    epochs: float
    seconds: float
    losses: Sequence[float]
    learning_rate: float
    finished: bool


def train_student(
    task: TrainingTask,
    options: TrainingOptions,
    threads: int,
    notify: Callable[[str], None],
    checkpoint: Path | None = None,
    resume: bool = False,
) -> TrainedStudent:
    """Train a student, on the CPU.

    Args:
        threads: Number of threads of PyTorch and of the teacher.

    Raises:
        UsageError: the training diverged, or the checkpoint is of another training.
        UnsupportedError: the student has operators that cannot be trained here; the message names all.
    """
    import torch

    from edgekit.compiler.compress.torch.distillation_loss import output_terms
    from edgekit.compiler.compress.torch.fake_quantization import SeveralTargets
    from edgekit.compiler.compress.torch.onnx_module import OnnxModule
    from edgekit.compiler.compress.torch.training_loop import Training
    from edgekit.compiler.compress.torch.training_state import TrainingState, load_state, save_state

    terms = output_terms(task.teacher, task.student, task.card)
    if task.features:
        terms += _features(task)
    key = _key(task, options)
    state = load_state(checkpoint, key) if resume and checkpoint is not None else TrainingState()
    training = TrainingSamples(task.training)
    scales = _scales(task, training)
    plain = OnnxModule(task.student, scales=scales) if not task.placements else None
    module = plain or SeveralTargets(task.placements, scales=scales)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        teacher = Teacher(task.teacher, [term.teacher for term in terms], threads)
        validation = TrainingSamples(task.validation)
        run = Training(module, task.names, teacher, terms, training, validation, task.augmentation, options)

        def save(state: TrainingState) -> None:
            if checkpoint is not None:
                save_state(checkpoint, state, key)

        whole = run.run(state, lambda moment: notify(_bar(moment)), save)
    finally:
        torch.set_num_threads(before)
    trained = {"": module.write_back()} if plain is module else module.quantized()
    epochs = state.step / run.steps_per_epoch
    return TrainedStudent(trained, epochs, state.seconds, tuple(state.losses), state.learning_rate, whole)


def _features(task: TrainingTask) -> list[Term]:
    from edgekit.compiler.compress.torch.distillation_loss import feature_terms, shared_features

    shared = shared_features(task.teacher, task.student)
    fewer = [name for name, has_fewer in shared.items() if has_fewer]
    channels = matched_channels(task.teacher, task.student, fewer, task.training, task.names)
    return feature_terms(shared, channels, FEATURE_WEIGHT)


def fitting_batch(student: ir.Model) -> int:
    """Return the samples per step: BATCH, or as many as fit into ACTIVATION_BYTES, at least 4.

    The size counts the values between nodes in float32, which the backward pass needs.
    """
    values = sum(math.prod(static_dims(v) or ()) for node in student.graph for v in node.outputs)
    return max(min(BATCH, ACTIVATION_BYTES // max(4 * values, 1)), 4)


def _scales(task: TrainingTask, training: TrainingSamples) -> dict[str, float]:
    """Compute the root mean squares of the inputs that the first weights are multiplied with."""
    from edgekit.compiler.compress.torch.trained_weights import first_weights

    some = training.batch(list(range(min(SIZED_BY, len(training)))))
    sizes = {
        task.names[name]: float(np.sqrt(np.mean(array.astype(np.float64) ** 2)))
        for name, array in some.items()
        if array.dtype.kind == "f"
    }
    return {
        weight: sizes[name] for weight, name in first_weights(task.student).items() if sizes.get(name, 0) > 0
    }


def _key(task: TrainingTask, options: TrainingOptions) -> str:
    """Return the key of a checkpoint. It excludes the length: a training may be resumed for longer."""
    chosen = {name: value for name, value in asdict(options).items() if name not in ("minutes", "epochs")}
    facts = [task.digest, sorted(chosen.items()), task.features, task.augmentation.changes]
    whole = hashlib.sha256(repr(facts).encode())
    for model in (task.teacher, task.student):
        whole.update(save_model(model))
    return " ".join([whole.hexdigest(), *task.placements])


def _bar(moment: Moment) -> str:
    """Format ``[######      ] 50 %  1:30 min left, epoch 3.2, loss 0.410``: the mean of the last steps."""
    full = int(BAR * moment.progress)
    left = moment.seconds / max(moment.progress, 1e-9) * (1 - moment.progress)
    return (
        f"[{'#' * full}{' ' * (BAR - full)}] {100 * moment.progress:.0f} %  {duration(left)} left,"
        f" epoch {moment.epochs:.1f}, loss {moment.loss:.3f}"
    )


# Matching of a student's channels with the teacher's, for intermediate values with the same name.
#
# A student of ``edgekit model shrink`` has some of the teacher's channels, and its weights were fitted to
# preserve their values. So each channel is found by the correlation of its values on a few samples.

SAMPLES, PLACES = 8, 4000
"""The most samples, and places of all of them together, that values are compared at."""
LEAST_CORRELATION = 0.5
"""Mean over the channels: less is another value of the same name."""
NO_VARIANCE = 1e-6


def matched_channels(
    teacher: ir.Model,
    student: ir.Model,
    values: Sequence[str],
    samples: Sequence[Sample],
    names: Mapping[str, str],
) -> dict[str, tuple[int, ...]]:
    """Find the teacher's channel for each of the student's.

    Args:
        values: Names of values ``[1, channels, ...]`` in both, with fewer channels in the student.
        samples: Samples of the teacher's inputs.
        names: The teacher's inputs -> the student's.

    Returns:
        Value -> channels, without values in which two channels match the same one, or do not correlate.
    """
    if not values:
        return {}
    chosen = [samples[index] for index in range(min(SAMPLES, len(samples)))]
    theirs = Reference(teacher, intermediate=list(values), optimize=True)
    ours = Reference(student, intermediate=list(values), optimize=True)
    expected = [theirs.run(sample) for sample in chosen]
    actual = [ours.run({names[name]: array for name, array in sample.items()}) for sample in chosen]
    channels_by_name = {}
    for name in values:
        correlation = _rows([run[name] for run in actual]) @ _rows([run[name] for run in expected]).T
        channels = correlation.argmax(1)
        distinct = len(set(channels.tolist())) == len(channels)
        if distinct and correlation.max(1).mean() >= LEAST_CORRELATION:
            channels_by_name[name] = tuple(channels.tolist())
    return channels_by_name


def _rows(arrays: Sequence[Array]) -> Array:
    """Return the values of each channel, with mean 0 and norm 1: ``[channels, places]``."""
    rows = np.concatenate([array[0].reshape(array.shape[1], -1) for array in arrays], 1).astype(np.float64)
    rows = rows[:, :: max(rows.shape[1] // PLACES, 1)]
    centred = rows - rows.mean(1, keepdims=True)
    normalized: Array = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), NO_VARIANCE)
    return normalized
