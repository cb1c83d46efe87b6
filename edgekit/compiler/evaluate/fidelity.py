"""Fidelity: how close a variant is to the float model, by the metric of its task.

With a card that has a task, predictions are compared (``metric.py`` in the task's folder): detections by
self-mAP, classes by top-1 agreement ... Otherwise it is the SNR of the worst output in dB, by its worst part
and channel (edgekit/compiler/evaluate/channel_snr.py).

None of them needs labels. The SNR of raw outputs is misleading for detectors, whose output is mostly
background: of two int8 YOLOX-nano the one with 15.7 dB had a self-mAP of .875, the one with 11.5 dB .922.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgekit.bundle.evidence import Figure
from edgekit.compiler.evaluate.average_precision import mean_average_precision
from edgekit.compiler.evaluate.channel_snr import Judgement, is_of_parts, judge_outputs
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.labels import Label, find_labels
from edgekit.compiler.evaluate.matched_rows import row_groups
from edgekit.compiler.evaluate.output_channels import Channels, find_channels
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.evaluate.proof import (
    Changes,
    Loss,
    Proof,
    count_changes,
    lost_answers,
    lost_precision,
    lowest_score,
)
from edgekit.compiler.evaluate.samples import FileSamples, Sample
from edgekit.compiler.evaluate.task_metric import TaskMetric, metric_named, metric_of
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EngineError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array, Json

Outputs = Mapping[str, Array]

PART_SNR = "part SNR"
"""The metric where an output has parts of different scale, or rows, and the worst part counts."""


@dataclass(frozen=True)
class Score:
    """Metric with its value.

    Attributes:
        metric: Name of the metric: ``SNR``, ``part SNR``, a task's metric, e.g. ``self-mAP``; with labels
            ``mAP`` or ``top-1``.
        value: 0 to 1, or decibels; ``inf`` if the outputs are equal, ``-inf`` if they are not finite.
        unit: ``dB`` or "".
    """

    metric: str
    value: float
    unit: str = ""

    def as_json(self) -> Figure:
        value = round(self.value, 4) if math.isfinite(self.value) else None
        return {"metric": self.metric, "value": value, "unit": self.unit}

    def __str__(self) -> str:
        if self.value == math.inf:
            return "exact"
        if not math.isfinite(self.value):
            return "not finite"
        return f"{self.value:.1f} dB" if self.unit else f"{self.metric} {self.value:.3f}"


@dataclass(frozen=True)
class Fidelity:
    """Closeness of a variant's outputs to the float model's.

    Attributes:
        score: The fidelity metric of the task; ``agreement`` in manifests.
        snr_db: SNR of the worst output.
        task: The task's own metric against labels, if the samples are labelled.
        kept: Confident predictions of the float model that it keeps; None if the metric has no such count.
        lost: Channels that are constant, though the float model's vary, or "".
        changes: Number of answers that it changes; None if the metric is not a proportion of the samples.
        proof: What the samples prove; None if it was not asked for, or the metric is the SNR.
    """

    score: Score
    snr_db: float
    task: Score | None = None
    kept: Kept | None = None
    lost: str = ""
    changes: Changes | None = None
    proof: Proof | None = None

    @property
    def rank(self) -> float:
        """Return the value that candidates are compared by; greater is better. If the metric is a proportion
        of the samples, it is the SNR, because a few samples are too coarse."""
        return self.snr_db if self.rank_unit else self.score.value

    @property
    def rank_unit(self) -> str:
        """Return the unit of the rank: ``dB`` or ""."""
        metric = metric_named(self.score.metric)
        return "" if metric is not None and not metric.counted else "dB"

    def as_json(self) -> dict[str, Json]:
        """Return its scores for people and ``--json``."""
        return {
            "fidelity": self.score.as_json(),
            "snr_db": round(self.snr_db, 2),
            "task": None if self.task is None else self.task.as_json(),
        }


class Evaluator:
    """Evaluator that scores variants against the float model on a set of samples.

    Args:
        card: Card that defines the decoding; with None or without a task, only the SNR is measured.
        expected: The reference outputs (the float model's) for each sample.
        channels: Channels of the outputs, which are judged separately if there is no task.
        placed: Data that decoding needs for each sample, e.g. a text's padding; None if it needs none.
    """

    def __init__(
        self,
        card: Card | None,
        expected: Sequence[Outputs],
        labels: Sequence[Label] | None = None,
        channels: Channels | None = None,
        placed: Sequence[Any] | None = None,
    ) -> None:
        self.expected = expected
        self.labels = labels
        self._placed = placed
        self._card = card if card is not None and card.task is not None else None
        self._kind = self._card.task.kind if self._card is not None and self._card.task is not None else ""
        self._metric = metric_of(self._kind)
        self._reference: list[Any] = []
        self._counted: list[Any] = []
        if self._metric is not None:
            self._reference = self._decode_reference(self._metric)
            if self._metric.count_kept is not None:
                self._counted = self._decode_all(expected, self._metric.counted_options)
            if self._metric.compare(self._reference, self._reference) is None:
                self._metric = None  # the float model predicts nothing on these samples
        self._channels: Channels = (channels or {}) if self._metric is None else {}
        self._rows = row_groups(self._channels, expected)
        self._of_parts = any(is_of_parts(one, name, expected) for name, one in self._channels.items())

    def evaluate(self, outputs: Sequence[Outputs], prove: bool = False) -> Fidelity:
        """Score the outputs of a variant, one for each sample.

        Args:
            prove: Whether to compute what the samples prove, which takes a bootstrap.
        """
        judgement = self._judge(self.expected, outputs)
        snr_db, metric = judgement.snr_db, self._metric
        try:
            labelled = self._on_labels(outputs) if self.labels is not None else None
            task = None if labelled is None else self._task(labelled)
            if metric is None:
                return Fidelity(Score(self.metric, snr_db, "dB"), snr_db, task, lost=judgement.lost)
            decoded = self._decode_all(outputs, metric.variant_options)
            score = Score(metric.name, metric.compare(self._reference, decoded) or 0.0)
            retained = metric.count_kept(self._counted, decoded) if metric.count_kept is not None else None
            proof = self._prove(metric, decoded, labelled) if prove else None
        except EngineError:  # outputs that are not finite cannot be decoded
            return Fidelity(Score(self.metric, -math.inf), -math.inf)
        changes = count_changes(metric, self._reference, decoded)
        return Fidelity(score, snr_db, task, retained, judgement.lost, changes, proof)

    def _judge(self, expected: Sequence[Outputs], outputs: Sequence[Outputs]) -> Judgement:
        return judge_outputs(expected, outputs, self._channels, self._rows)

    def most_telling(self, count: int, with_predictions: int) -> Sequence[int]:
        """Return indices of samples to measure small changes on: the first ``count``, or, if predictions can
        be compared finely, up to ``with_predictions`` samples with the most of them."""
        if self._metric is None or self._metric.change is None:
            return range(min(count, len(self.expected)))
        counts = [len(prediction.scores) for prediction in self._reference]
        return sorted(sorted(range(len(counts)), key=lambda i: (-counts[i], i))[:with_predictions])

    def change_db(self, outputs: Sequence[Outputs], samples: Sequence[int]) -> float:
        """Measure how little a variant changes the result on these samples, in dB: by the task's ``change``
        if it has one, else by the SNR of the worst output. ``inf`` if nothing changes."""
        expected = [self.expected[index] for index in samples]
        snr_db = self._judge(expected, outputs).snr_db
        if self._metric is None or self._metric.change is None:
            return snr_db
        try:
            decoded = self._decode_all(outputs, self._metric.variant_options, samples)
        except EngineError:  # outputs that are not finite cannot be decoded
            return -math.inf
        change = self._metric.change([self._reference[index] for index in samples], decoded)
        return -10 * math.log10(change) if change > 0 else math.inf

    @property
    def metric(self) -> str:
        """Return the metric of the score: SNR if the task has none, or the float model predicts nothing."""
        if self._metric is not None:
            return self._metric.name
        return PART_SNR if self._of_parts else "SNR"

    def _prove(self, metric: TaskMetric, decoded: Sequence[Any], labelled: Sequence[Any] | None) -> Proof:
        objects = sum(len(prediction.scores) for prediction in self._reference) if metric.objects else 0
        low = lowest_score(metric, self._reference, decoded)
        loss = None if labelled is None else self._loss(labelled)
        return Proof(len(self.expected), objects, low, loss)

    def _on_labels(self, outputs: Sequence[Outputs]) -> list[Any]:
        metric = metric_of(self._kind)
        assert metric is not None  # labels are read for tasks with one
        options = metric.variant_options
        pairs = zip(outputs, self.labels or (), strict=True)
        return [self._decode(result, options, label.placed) for result, label in pairs]

    def _right(self, labelled: Sequence[Any]) -> Array:
        pairs = zip(labelled, self.labels or (), strict=True)
        return np.array([result.indices[0] == label.index for result, label in pairs])

    def _task(self, labelled: Sequence[Any]) -> Score | None:
        if self._kind == "classify":
            return Score("top-1", float(np.mean(self._right(labelled))))
        value = mean_average_precision([label.boxes for label in self.labels or ()], labelled)
        return None if value is None else Score("mAP", value)

    def _loss(self, labelled: Sequence[Any]) -> Loss | None:
        reference = self._on_labels(self.expected)
        if self._kind == "classify":
            return lost_answers(self._right(reference), self._right(labelled))
        return lost_precision([label.boxes for label in self.labels or ()], reference, labelled)

    def _decode_reference(self, metric: TaskMetric) -> list[Any]:
        """Decode the float model's predictions that a variant's are compared with."""
        if not metric.reference_score:
            return self._decode_all(self.expected, metric.reference_options)
        every = self._decode_all(self.expected, metric.variant_options)
        return [with_score(prediction, metric.reference_score) for prediction in every]

    def _decode_all(
        self, outputs: Sequence[Outputs], options: Mapping[str, Json], samples: Sequence[int] = ()
    ) -> list[Any]:
        """Decode the predictions for all samples, or for those with these indices."""
        placed: Sequence[Any] = self._placed or [None] * len(self.expected)
        placed = [placed[index] for index in samples] if samples else placed
        return [self._decode(output, options, place) for output, place in zip(outputs, placed, strict=True)]

    def _decode(self, outputs: Outputs, options: Mapping[str, Json], placed: Any = None) -> Any:
        """Decode a prediction, with positions in the picture's pixels, or the input's without a picture."""
        assert self._card is not None
        return processing.decode(self._card, outputs, placed or whole_input(self._card), **options)


PER_OBJECT = {
    "boxes", "scores", "classes", "landmarks", "points", "point_scores", "depths", "crops", "corners"
}  # fmt: skip
"""Fields of predictions with an entry for each object."""


def with_score(prediction: Any, least: float) -> Any:
    """Return a prediction's objects whose score is at least so high."""
    kept = np.flatnonzero(prediction.scores >= least)
    values = {field.name: getattr(prediction, field.name) for field in fields(prediction)}
    taken = {
        name: value[kept] if isinstance(value, np.ndarray) else [value[index] for index in kept]
        for name, value in values.items()
        if name in PER_OBJECT and value is not None
    }
    return replace(prediction, **taken)


def whole_input(card: Card) -> ImagePlacement | None:
    """Return the placement of a picture of the input's size; None if the model takes no picture."""
    image = next((entry for entry in card.inputs.values() if isinstance(entry, ImageInput)), None)
    if image is None:
        return None
    return ImagePlacement(image.width, image.height, image.width, image.height)


def worst_snr_db(expected: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """Compute the SNR in dB of the worst output, each as a whole; ``inf`` if all are equal."""
    return judge_outputs(expected, outputs, {}).snr_db


def source_evaluator(source: ir.Model, card: Card | None, samples: Sequence[Sample]) -> Evaluator:
    """Return an evaluator that compares with the source model's outputs on these samples, and with labels
    beside their files.
    """
    reference = Reference(source)
    labels = find_labels(samples.paths, card) if isinstance(samples, FileSamples) else None
    expected = keep_outputs(map(reference.run, counted(samples, "samples")))
    return Evaluator(card, expected, labels, find_channels(source.graph), text_placements(card, samples))
