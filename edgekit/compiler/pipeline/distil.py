"""Training of a student to reproduce its teacher's outputs, judged on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from edgekit.compiler.compress.picture_augmentation import PictureAugmentation, changes_for
from edgekit.compiler.compress.student_training import BATCH, TrainingTask, fitting_batch, train_student
from edgekit.compiler.compress.torch import need_torch
from edgekit.compiler.compress.training_length import checked_end
from edgekit.compiler.compress.training_samples import hold_out
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score, source_evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.samples import Sample, load_samples
from edgekit.compiler.importers.contract import ImportOptions, Source
from edgekit.compiler.importers.conversion import as_source, open_source_model, source_name
from edgekit.compiler.model.onnx_file import save_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.distil_request import DistilRequest
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.errors import UsageError
from edgekit.processing.card import Card, load_card
from edgekit.system.atomic_files import write_atomically
from edgekit.system.cpu import allowed_threads, default_threads
from edgekit.system.declared_options import called_with
from edgekit.system.formats.plain_text import duration
from edgekit.system.progress import listener, stage
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.compiler.compress.torch.training_loop import TrainingOptions

LEARNING_RATE = 5e-3
"""Where none is given: the greatest that is tried."""


@called_with(DistilRequest)
def distil(request: DistilRequest) -> DistilledModel:
    """Train a student on a teacher's outputs for unlabelled samples, on the CPU (docs/distilling.md).

    Returns:
        The trained student, with its fidelity before and after. ``better`` is whether it improved.

    Raises:
        UsageError: no end was given, teacher and student do not fit, or the training diverged.
        UnsupportedError: the student has operators that cannot be trained here; all are named.
        SampleError: there are too few samples, or one does not fit the inputs.
        ModelError: a file is not a model.
        MissingDependency: PyTorch is not installed.
    """
    need_torch("distilling a model")
    threads = default_threads() if request.threads is None else allowed_threads(request.threads)
    options, progress, card = _options(request), listener(request.progress), request.card
    teacher, student = as_source(request.teacher), as_source(request.student)
    loaded_card = card if isinstance(card, Card) or card is None else load_card(card)
    augmentation = PictureAugmentation(loaded_card, changes_for(loaded_card, request.augment))
    if request.resume and request.checkpoint is None:
        raise UsageError("resume needs the checkpoint of the interrupted training")
    with stage(progress, "opened") as notify:
        importing = ImportOptions(trust_pickle=request.trust_pickle)
        fixed = {**(loaded_card.shapes() if loaded_card else {}), **(request.shapes or {})}
        source, answering = _opened(teacher, fixed, importing)
        _, trained = _opened(student, _renamed(fixed, source), importing)
        names = _check_signatures(source, trained)
        notify(f"{source_name(teacher)} teaches {source_name(student)}")
    with stage(progress, "samples") as notify:
        inputs, outputs = signature(source)
        if loaded_card:
            loaded_card.check(inputs, outputs)
        samples = load_samples(request.samples, inputs, loaded_card)
        parts = hold_out(samples.arrays, samples.origin)
        notify(f"{samples.origin}: {len(parts.training)} to train on, {len(parts.test)} to test")
    with stage(progress, "judged") as notify:
        evaluator = source_evaluator(source, loaded_card, parts.test)
        before = _judge(trained, source, names, evaluator, parts.test)
        notify(f"the student's fidelity is {before.score} before training")
    with stage(progress, "trained", live=True) as notify:
        task = TrainingTask(
            answering, trained, names, loaded_card, parts.training, parts.validation, augmentation,
            request.features, digest=samples.digest,
        )  # fmt: skip
        if request.batch is None:
            options = replace(options, batch=fitting_batch(trained))
        saved = None if request.checkpoint is None else Path(request.checkpoint)
        done = train_student(task, options, threads, notify, saved, request.resume)
        found_out = f"learning rate {done.learning_rate:.2g}, " if request.learning_rate is None else ""
        losses = f"validation loss {done.losses[0]:.3f} -> {min(done.losses):.3f}"
        notify(f"{done.epochs:.1f} epochs, {found_out}{losses}")
    model = done.models[""]
    return DistilledModel(
        name=source_name(student),
        teacher=source_name(teacher),
        onnx=save_model(model),
        before=before,
        after=_judge(model, source, names, evaluator, parts.test),
        task=evaluator.evaluate(evaluator.expected).task,
        samples={
            "training": len(parts.training), "validation": len(parts.validation), "test": len(parts.test),
        },
        epochs=done.epochs,
        seconds=done.seconds,
        losses=done.losses,
        augmentation=augmentation.changes,
        finished=done.finished,
    )  # fmt: skip


def _options(request: DistilRequest) -> TrainingOptions:
    """Check and return the training options. Raises UsageError: no end, or a number that is not above 0."""
    from edgekit.compiler.compress.torch.training_loop import TrainingOptions

    epochs, minutes, batch, rate = request.epochs, request.minutes, request.batch, request.learning_rate
    checked_end(epochs, minutes, batch, rate)
    greatest = LEARNING_RATE if rate is None else rate
    return TrainingOptions(epochs, minutes, batch or BATCH, greatest, rate is None, seed=request.seed)


def _opened(
    model: Source, shapes: Mapping[str, tuple[int, ...]], importing: ImportOptions
) -> tuple[ir.Model, ir.Model]:
    """Return a model as opened, and its canonical form with float weights."""
    source, _ = open_source_model(model, shapes, importing)
    canonical = source.clone()
    run_passes(canonical)
    return source, with_float_weights(canonical)


def _renamed(fixed: Mapping[str, tuple[int, ...]], teacher: ir.Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes for the student from those of the teacher's inputs; unnamed for one input."""
    inputs = signature(teacher)[0]
    if len(inputs) == 1:
        return {"": inputs[0].shape}
    return {**{spec.name: spec.shape for spec in inputs}, **fixed}


def _check_signatures(teacher: ir.Model, student: ir.Model) -> dict[str, str]:
    """Map inputs and outputs of the teacher to those of the student, by their order.

    Raises:
        UsageError: their number, a shape or an element type differs.
    """
    names = {}
    for kind, ours, theirs in zip(("input", "output"), signature(teacher), signature(student), strict=True):
        if len(ours) != len(theirs):
            raise UsageError(
                f"the teacher has {len(ours)} {kind}s but the student has {len(theirs)}; both need "
                "the same number"
            )
        for one, other in zip(ours, theirs, strict=True):
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                raise UsageError(
                    f"the teacher's {kind} is {one} but the student's is {other}; make them the same"
                )
            names[one.name] = other.name
    return names


def _judge(
    student: ir.Model,
    teacher: ir.Model,
    names: Mapping[str, str],
    evaluator: Evaluator,
    test: Sequence[Sample],
) -> Fidelity:
    reference, specs = Reference(student, optimize=True), signature(teacher)[1]
    runs = (reference.run({names[name]: array for name, array in sample.items()}) for sample in test)
    return evaluator.evaluate(
        keep_outputs({spec.name: run[names[spec.name]] for spec in specs} for run in runs)
    )


@dataclass(frozen=True, eq=False)
class DistilledModel:
    """Trained student: ``save`` writes the ONNX file.

    Attributes:
        name: File name of the student.
        teacher: File name of the teacher.
        onnx: The trained student as an ONNX file.
        before: The student's fidelity to the teacher before training, on the test samples.
        after: The student's fidelity to the teacher after training.
        task: The teacher's own score on labelled test samples; ``before.task`` and ``after.task`` are the
            student's.
        samples: Number of samples for training, for choosing the best weights, and for testing.
        epochs: Number of passes over the samples.
        seconds: Duration of the training.
        losses: Validation loss at each check; the first is before training.
        augmentation: Changes of the pictures.
        finished: Whether the training finished; False if it was stopped, with the best weights so far.
    """

    name: str
    teacher: str
    onnx: bytes
    before: Fidelity
    after: Fidelity
    task: Score | None
    samples: Mapping[str, int]
    epochs: float
    seconds: float
    losses: Sequence[float]
    augmentation: Sequence[str]
    finished: bool

    @property
    def better(self) -> bool:
        """Return whether the student is closer to the teacher than before, in validation and test."""
        return min(self.losses) < self.losses[0] and self.after.rank > self.before.rank

    def save(self, path: Path | str) -> None:
        """Write the ONNX file atomically.

        Raises:
            OSError: the file can't be written.
        """
        write_atomically(Path(path), [self.onnx])

    def as_json(self) -> dict[str, Json]:
        return {
            "student": self.name,
            "teacher": self.teacher,
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "task": None if self.task is None else self.task.as_json(),
            "samples": dict(self.samples),
            "epochs": round(self.epochs, 3),
            "seconds": round(self.seconds, 1),
            "losses": [round(loss, 6) for loss in self.losses],
            "augmentation": list(self.augmentation),
            "finished": self.finished,
            "better": self.better,
        }

    def text(self) -> str:
        counts = self.samples
        lines = [
            f"  training         {self.epochs:.1f} epochs of {counts['training']} samples in"
            f" {duration(self.seconds)}" + ("" if self.finished else "; stopped, this is the best so far"),
            f"  loss             {self.losses[0]:.3f} -> {min(self.losses):.3f} on {counts['validation']}"
            " validation samples",
            f"  fidelity         {self.before.score} -> {self.after.score} to the teacher on"
            f" {counts['test']} test samples, SNR {self.before.snr_db:.1f} -> {self.after.snr_db:.1f} dB",
        ]
        if self.task is not None and self.before.task is not None and self.after.task is not None:
            lines.append(
                f"  accuracy         {self.before.task} -> {self.after.task} on their labels, the teacher"
                f" {self.task.value:.3f}"
            )
        if not self.better:
            lines.append("  not better than before")
        return "\n".join(lines)
