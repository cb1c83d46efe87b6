"""Training of a build's smaller models to reproduce the whole model's outputs: ``--distil``.

split: test, validation, training -> pruned model -> trained in float -> trained with int8's rounding
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from edgekit.compiler.compress.int8_placement import Int8Placement
from edgekit.compiler.compress.picture_augmentation import PictureAugmentation, changes_for
from edgekit.compiler.compress.student_training import (
    TrainedStudent,
    TrainingTask,
    fitting_batch,
    train_student,
)
from edgekit.compiler.compress.torch import need_torch
from edgekit.compiler.compress.training_length import TrainingLength
from edgekit.compiler.compress.training_samples import hold_out
from edgekit.compiler.evaluate.samples import Sample, Samples, spread, subset
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.quantize.observe.calibrate import Split
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.processing.card import Card
from edgekit.system.cpu import default_threads

INT8_PART = 0.25
"""Of the training with int8's rounding, which begins where the training in float ended."""
LEARNING_RATE, INT8_LEARNING_RATE = 5e-3, 1e-3
FITTED, CHOSEN = 96, 32
"""Samples that ranges and weights are fitted to, and that candidates are compared on."""
TESTED = 43
"""Least number of samples for testing, where there are so many: as of 128 samples without training."""


@dataclass(frozen=True, eq=False)
class Distillation:
    """Teacher, samples and length for training smaller models.

    Attributes:
        teacher: The canonical float model.
        card: Card that describes its inputs, or None.
    """

    teacher: ir.Model
    card: Card | None
    training: Sequence[Sample]
    validation: Sequence[Sample]
    length: TrainingLength

    def in_float(self, student: ir.Model, and_int8: bool, notify: Callable[[str], None]) -> TrainedStudent:
        """Train a smaller model; ``and_int8`` reserves a part of the time for int8."""
        return self._trained(student, {}, 1 - INT8_PART if and_int8 else 1.0, LEARNING_RATE, notify)

    def in_int8(
        self, student: ir.Model, placements: Mapping[str, Int8Placement], notify: Callable[[str], None]
    ) -> TrainedStudent:
        """Continue training with the rounding of several placements, each in a part of every batch."""
        return self._trained(student, placements, INT8_PART, INT8_LEARNING_RATE, notify)

    def _trained(
        self,
        student: ir.Model,
        placements: Mapping[str, Int8Placement],
        share: float,
        learning_rate: float,
        notify: Callable[[str], None],
    ) -> TrainedStudent:
        from edgekit.compiler.compress.torch.training_loop import TrainingOptions

        epochs, minutes = self.length.part(share)
        names = {str(v.name): str(v.name) for v in (*self.teacher.graph.inputs, *self.teacher.graph.outputs)}
        augmentation = PictureAugmentation(self.card, changes_for(self.card, None))
        detects = self.card is not None and self.card.task is not None and self.card.task.kind == "detect"
        task = TrainingTask(
            self.teacher, student, names, self.card, self.training, self.validation, augmentation,
            features=detects and not placements, placements=placements,
        )  # fmt: skip
        options = TrainingOptions(epochs, minutes, fitting_batch(student), learning_rate, lowered=True)
        done = train_student(task, options, default_threads(), notify)
        if not done.finished:
            raise KeyboardInterrupt  # half a training is no variant
        return done


def refuse_what_cannot_be_trained(options: BuildOptions, model: ir.Model) -> None:
    """Check that the canonical model can be trained, if the options ask for it."""
    if options.distil is not None:
        need_torch("--distil")
        from edgekit.compiler.compress.torch.onnx_module import OnnxModule

        OnnxModule(with_float_weights(model))


@dataclass(frozen=True, eq=False)
class TrainingParts:
    """Samples of a build that trains.

    Attributes:
        split: Samples for calibration, validation and test. No test sample is trained on.
        training: Samples to train on; they include those for calibration.
        validation: Samples to choose the best weights by; they include those for validation.
        samples: All samples, with a digest that distinguishes this split from others.
    """

    split: Split
    training: Sequence[Sample]
    validation: Sequence[Sample]
    samples: Samples


def distillation(
    options: BuildOptions, teacher: ir.Model, card: Card | None, parts: TrainingParts | None
) -> Distillation | None:
    """Return the training data of a build's smaller models; None if it does not train any."""
    if parts is None or options.distil is None:
        return None
    return Distillation(teacher, card, parts.training, parts.validation, options.distil)


def split_for_training(samples: Samples) -> TrainingParts:
    """Hold samples out for choosing and testing, and train on all others."""
    parts = hold_out(samples.arrays, samples.origin, TESTED)
    calibration, validation = (
        subset(part, spread(range(len(part)), limit))
        for part, limit in ((parts.training, FITTED), (parts.validation, CHOSEN))
    )
    digest = hashlib.sha256(f"{samples.digest} for training".encode()).hexdigest()
    return TrainingParts(
        Split(calibration, validation, parts.test, ()),
        parts.training,
        parts.validation,
        replace(samples, digest=digest),
    )
