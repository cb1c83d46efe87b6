"""Distillation loss: the difference between the student's outputs and the teacher's.

For an output of a Softmax, or the scores of a card's classifier, it compares the logits: the divergence
(Kullback-Leibler) of softmax(logits / T), times T^2 (Hinton et al., arXiv 1503.02531), plus the mean squared
error of the centred logits. For any other output, it is the mean squared error over the variance of the
teacher's, for each part of the output separately (``edgekit/compiler/compress/output_parts.py``).

For a detector's scores of 0 to 1, it is the divergence of Bernoulli distributions. The squared error has no
gradient where a Sigmoid is wrongly near 0. Boxes are weighted by the teacher's best score (times its
objectness), classes by its objectness (``DetectorRows``): apps never read predictions for the background.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
import torch.nn.functional as F  # noqa: N812

from edgekit.compiler.compress.output_parts import OutputSlice, find_parts
from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.compiler.compress.torch.trained_weights import PRODUCTS
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import int_of
from edgekit.processing.card import Card

TEMPERATURE = 4.0
FEATURES = 12
"""Most values inside of the graphs that are compared."""
LEAST_VARIANCE = 1e-12
LEAST_SCORE = 1e-6
"""Scores are compared between this and 1 less this."""


@dataclass(frozen=True)
class DetectorRows:
    """Output with a row for each place: a box, perhaps an objectness, and a score for each class, 0 to 1.

    Attributes:
        axis: Axis of box, objectness and scores; the axis of the rows is the other one after the first.
        objectness: Index of the objectness; None if there is none.
        classes: Index of the first class.
    """

    axis: int
    objectness: int | None
    classes: int

    @property
    def parts(self) -> tuple[OutputSlice, ...]:
        """Return the parts: box, objectness and classes."""
        last = OutputSlice(self.axis, self.classes, sys.maxsize, "")
        if self.objectness is None:
            return OutputSlice(self.axis, 0, self.classes, ""), last
        place = self.objectness
        return OutputSlice(self.axis, 0, place, ""), OutputSlice(self.axis, place, place + 1, ""), last

    def weights(self, part: OutputSlice, teacher: Tensor) -> Tensor | None:
        """Return the weight of each row of a part: ``[batch, *shape with 1 on the axis]``; None if equal.

        Args:
            part: One of ``parts``.
            teacher: The teacher's output, ``[batch, *shape]``.
        """
        if not self.scores(part):
            axis = self.axis + 1
            scores = teacher.narrow(axis, self.classes, teacher.shape[axis] - self.classes).amax(axis, True)
            return scores if self.objectness is None else scores * self.objects(teacher)
        return None if self.objectness in (None, part.start) else self.objects(teacher)

    def scores(self, part: OutputSlice) -> bool:
        """Return whether a part contains scores of 0 to 1."""
        return part.start in (self.objectness, self.classes)

    def objects(self, teacher: Tensor) -> Tensor:
        """Return the teacher's confidence in an object per row: ``[batch, *shape with 1 on the axis]``."""
        axis = self.axis + 1
        if self.objectness is not None:
            return teacher.narrow(axis, self.objectness, 1)
        return teacher.narrow(axis, self.classes, teacher.shape[axis] - self.classes).amax(axis, True)


DETECTORS: Mapping[str, DetectorRows] = {
    "yolox": DetectorRows(2, 4, 5),
    "yolov5": DetectorRows(2, 4, 5),
    "yolov8": DetectorRows(1, None, 4),
}
"""By the card's decoding (edgekit/tasks/detect)."""


@dataclass(frozen=True)
class Term:
    """Term of the loss: a value of the student that is compared with one of the teacher.

    Attributes:
        axis: Axis of the classes if the value contains logits, else None.
        parts: Parts that are compared separately; empty if there is one part.
        weight: Weight in the sum of all terms.
        rows: Rows of a detector, which have different weights.
        channels: The teacher's channels that match the student's, along axis 1; empty for all.
    """

    student: str
    teacher: str
    axis: int | None = None
    parts: tuple[OutputSlice, ...] = ()
    weight: float = 1.0
    rows: DetectorRows | None = None
    channels: tuple[int, ...] = ()

    def of_teacher(self, answers: Mapping[str, Tensor]) -> Tensor:
        """Return the teacher's value, ``[batch, *shape of the student's]``."""
        value = answers[self.teacher]
        return value.index_select(2, torch.tensor(self.channels)) if self.channels else value


def output_terms(teacher: ir.Model, student: ir.Model, card: Card | None) -> list[Term]:
    """Return a term for each float output; outputs of both are in the same order.

    Args:
        card: Card that identifies logits by the task ``classify``, or None.
    """
    terms = []
    parts = find_parts(teacher.graph)
    for one, other in zip(teacher.graph.outputs, student.graph.outputs, strict=True):
        if one.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE):
            continue
        a, b = _logits(one), _logits(other)
        if a is not None and b is not None and a[1] == b[1]:
            terms.append(Term(b[0], a[0], a[1]))
        elif a is None and b is None and _is_logits(card, str(one.name)):
            terms.append(Term(str(other.name), str(one.name), len(static_dims(one) or ()) - 1))
        else:
            name = str(one.name)
            rows = _detector_rows(card, name)
            apart = rows.parts if rows else tuple(parts.get(name, ()))
            terms.append(Term(str(other.name), name, None, apart, rows=rows))
    return terms


def shared_features(teacher: ir.Model, student: ir.Model) -> dict[str, bool]:
    """Map values that both graphs have by name, evenly spread, to whether the student's has fewer channels.

    They are inputs that weights are multiplied with, which pruning fits to the teacher's.
    """
    shapes = {str(value.name): static_dims(value) or () for node in teacher.graph for value in node.outputs}
    outputs = {str(value.name) for model in (teacher, student) for value in model.graph.outputs}
    shared: dict[str, bool] = {}
    for node in student.graph:
        for value in node.outputs:
            name, dim = str(value.name), static_dims(value) or ()
            whole = shapes.get(name, ())
            read = any(use.op_type in PRODUCTS for use in value.consumers())
            fewer = len(dim) == len(whole) > 1 and dim[1] < whole[1] and dim == (dim[0], dim[1], *whole[2:])
            if read and value.dtype == ir.DataType.FLOAT and name not in outputs and dim:
                shared.update({name: fewer} if fewer or dim == whole else {})
    count, names = min(len(shared), FEATURES), list(shared)
    chosen = [names[(2 * k + 1) * len(names) // (2 * count)] for k in range(count)]
    return {name: shared[name] for name in chosen}


def feature_terms(
    shared: Mapping[str, bool], channels: Mapping[str, tuple[int, ...]], weight: float
) -> list[Term]:
    """Return terms of ``shared_features``, without values with fewer channels that have no matches.

    Args:
        shared: Value -> whether the student's has fewer channels.
        channels: Value -> the teacher's channels that match the student's.
    """
    names = [name for name, fewer in shared.items() if not fewer or name in channels]
    return [Term(name, name, weight=weight / len(names), channels=channels.get(name, ())) for name in names]


class DistillationLoss:
    """Loss of a batch.

    Args:
        answers: The teacher's outputs for some samples, ``[batch, *shape]``, to normalize errors.
    """

    def __init__(self, terms: Sequence[Term], answers: Mapping[str, Tensor]) -> None:
        self.terms = tuple(terms)
        self._scales: dict[tuple[Term, OutputSlice | None], tuple[float, float]] = {}
        for term in self.terms:
            for part in term.parts or (None,):
                weights = _weights(term, part, answers[term.teacher])
                mean = 1.0 if weights is None else max(float(weights.mean()), LEAST_VARIANCE)
                value = _slice(term.of_teacher(answers), part)
                if _are_scores(term, part) and term.rows is not None:
                    # A sum over classes, for each object, as detectors are trained.
                    objects = term.rows.objects(answers[term.teacher])
                    mean = max(float(objects.mean()), LEAST_VARIANCE) / value.shape[term.rows.axis + 1]
                    self._scales[term, part] = 1.0, mean
                else:
                    self._scales[term, part] = _variance(value, term.axis, weights), mean

    def __call__(self, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor]) -> Tensor:
        """Compute the loss, a scalar; 0 if the student's values equal the teacher's.

        Args:
            student: The student's values by name, ``[batch, *shape]``.
            teacher: The teacher's values, in the same form.
        """
        total = torch.zeros(())
        for (term, part), (variance, mean) in self._scales.items():
            values, targets = _slice(student[term.student], part), _slice(term.of_teacher(teacher), part)
            share = term.weight / max(len(term.parts), 1)
            if term.axis is None:
                weights = _weights(term, part, teacher[term.teacher])
                error = _divergence if _are_scores(term, part) else _squared_error
                total = total + share * error(values, targets, weights) / (variance * mean)
            else:
                total = total + share * _of_logits(values, targets, term.axis + 1, variance)
        return total


def _of_logits(student_values: Tensor, teacher_values: Tensor, axis: int, variance: float) -> Tensor:
    target = torch.softmax(teacher_values / TEMPERATURE, axis)
    divergence = target * (
        torch.log_softmax(teacher_values / TEMPERATURE, axis)
        - torch.log_softmax(student_values / TEMPERATURE, axis)
    )
    error = (
        F.mse_loss(
            student_values - student_values.mean(axis, True), teacher_values - teacher_values.mean(axis, True)
        )
        / variance
    )
    return TEMPERATURE**2 * divergence.sum(axis).mean() + error


def _slice(value: Tensor, part: OutputSlice | None) -> Tensor:
    """Return a part of ``[batch, *shape]``; the part's axis does not count the batch axis."""
    if part is None:
        return value
    stop = min(part.stop, value.shape[part.axis + 1])
    return value.narrow(part.axis + 1, part.start, stop - part.start)


def _weights(term: Term, part: OutputSlice | None, teacher: Tensor) -> Tensor | None:
    return term.rows.weights(part, teacher) if term.rows is not None and part is not None else None


def _are_scores(term: Term, part: OutputSlice | None) -> bool:
    return term.rows is not None and part is not None and term.rows.scores(part)


def _divergence(student_values: Tensor, teacher_values: Tensor, weights: Tensor | None) -> Tensor:
    """Compute the mean Kullback-Leibler divergence of Bernoulli distributions."""
    p, q = (scores.clamp(LEAST_SCORE, 1 - LEAST_SCORE) for scores in (teacher_values, student_values))
    divergence = p * (p.log() - q.log()) + (1 - p) * ((1 - p).log() - (1 - q).log())
    return (divergence if weights is None else weights * divergence).mean()


def _squared_error(student_values: Tensor, teacher_values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return F.mse_loss(student_values, teacher_values)
    return (weights * (student_values - teacher_values).square()).mean()


def _variance(value: Tensor, axis: int | None, weights: Tensor | None = None) -> float:
    """Compute the variance: of centred logits if there is an axis, weighted if there are weights."""
    centred = value if axis is None else value - value.mean(axis + 1, True)
    if weights is not None:
        share = weights / weights.mean().clamp(min=LEAST_VARIANCE)
        spread = value.double() - (share * value).double().mean()
        return max(float((share * spread.square()).mean()), LEAST_VARIANCE)
    return max(float(centred.double().var()), LEAST_VARIANCE)


def _logits(output: ir.Value) -> tuple[str, int] | None:
    node = output.producer()
    if node is None or node.domain or node.op_type not in ("Softmax", "LogSoftmax"):
        return None
    source = node.inputs[0]
    rank = len(static_dims(output) or ())
    return None if source is None else (str(source.name), int_of(node, "axis", -1) % rank)


def _detector_rows(card: Card | None, name: str) -> DetectorRows | None:
    task = card.task if card is not None else None
    if task is None or task.kind != "detect" or name not in task.outputs.values():
        return None
    return DETECTORS.get(task.decode)


def _is_logits(card: Card | None, name: str) -> bool:
    if card is None or card.task is None or card.task.kind != "classify" or card.task.decode != "logits":
        return False
    return name in card.task.outputs.values()
