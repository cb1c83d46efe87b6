"""Result of distilling a student, measured on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats.plain_text import duration
from edgekit.tensor_spec import Json


@dataclass(frozen=True, eq=False)
class DistilledModel:
    """Trained student: ``save`` writes the ONNX file.

    Attributes:
        name: File name of the student.
        teacher: File name of the teacher.
        models: Target -> the trained student for its int8, as an ONNX file with Q/DQ pairs; "" -> in float.
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
    models: Mapping[str, bytes]
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
    def onnx(self) -> bytes:
        """Return the trained student as an ONNX file; for several targets, the first one's."""
        return next(iter(self.models.values()))

    @property
    def quantized_for(self) -> tuple[str, ...]:
        """Return the targets whose int8 it was trained and judged in; the worst fidelity counts."""
        return tuple(target for target in self.models if target)

    @property
    def better(self) -> bool:
        """Return whether the student is closer to the teacher than before, in validation and test."""
        return min(self.losses) < self.losses[0] and self.after.rank > self.before.rank

    def paths(self, path: Path | str) -> dict[str, Path]:
        """Map each target to the path for ``save``: ``path``, or ``NAME-TARGET.onnx`` for several targets."""
        path = Path(path)
        several = len(self.models) > 1
        return {t: path.with_name(f"{path.stem}-{t}{path.suffix}") if several else path for t in self.models}

    def save(self, path: Path | str) -> None:
        """Write the ONNX file atomically; for several targets, ``NAME-TARGET.onnx``.

        Raises:
            OSError: the file can't be written.
        """
        for target, file in self.paths(path).items():
            write_atomically(file, [self.models[target]])

    def as_json(self) -> dict[str, Json]:
        return {
            "student": self.name,
            "teacher": self.teacher,
            "before": _fidelity(self.before),
            "after": _fidelity(self.after),
            "task": None if self.task is None else self.task.as_json(),
            "samples": dict(self.samples),
            "epochs": round(self.epochs, 3),
            "seconds": round(self.seconds, 1),
            "losses": [round(loss, 6) for loss in self.losses],
            "augmentation": list(self.augmentation),
            "quantized_for": list(self.quantized_for),
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
        if self.quantized_for:
            worst = ", of the worse one" if len(self.quantized_for) > 1 else ""
            lines.append(f"  int8             {' and '.join(self.quantized_for)}: before and after{worst}")
        if self.task is not None and self.before.task is not None and self.after.task is not None:
            lines.append(
                f"  accuracy         {self.before.task} -> {self.after.task} on their labels, the teacher"
                f" {self.task.value:.3f}"
            )
        if not self.better:
            lines.append("  not better than before")
        return "\n".join(lines)


def _fidelity(fidelity: Fidelity) -> dict[str, Json]:
    return {
        "fidelity": fidelity.score.as_json(),
        "snr_db": round(fidelity.snr_db, 2),
        "task": None if fidelity.task is None else fidelity.task.as_json(),
    }
