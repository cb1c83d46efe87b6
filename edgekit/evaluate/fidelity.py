"""Fidelity: how close a variant is to the float model, by a metric of its task.

    detect     self-mAP: mAP with the float model's detections (score > .25) as ground truth
    classify   top-1 agreement: the fraction of samples with the same top-1 class
    otherwise  SNR of the worst output in dB (edgekit/evaluate/verify.py)

None of them needs labels. The SNR of raw outputs is misleading for detectors, whose output is mostly
background: of two int8 YOLOX-nano the one with 15.7 dB had a self-mAP of .875, the one with 11.5 dB .922.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.bundle.evidence import Figure
from edgekit.cards import processing
from edgekit.cards.predictions import Classes, Detections, ImagePlacement
from edgekit.errors import EngineError
from edgekit.evaluate.average_precision import mean_average_precision
from edgekit.evaluate.verify import compare
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.cards.card import Card
    from edgekit.evaluate.labels import Label

Outputs = Mapping[str, Array]

REFERENCE_SCORE_THRESHOLD = 0.25
"""Score above which the float model's detections count as ground truth."""
VARIANT_SCORE_THRESHOLD = 0.01
"""Score above which a variant's detections count. It is low, because mAP needs the whole precision curve."""
NO_PLACEMENT = ImagePlacement(1, 1, 1, 1)
"""A class has no position in the picture."""


@dataclass(frozen=True)
class Score:
    """A metric with its value.

    Attributes:
        metric: What was measured: ``self-mAP``, ``top-1 .score``, ``mAP``, ``top-1`` or ``SNR``.
        value: 0 to 1, or decibels; ``inf`` if the outputs are equal, ``-inf`` if they are not finite.
        unit: ``dB`` or "".
    """

    metric: str
    value: float
    unit: str = ""

    def as_json(self) -> Figure:
        """As JSON; infinities become None."""
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
    """How close a variant's outputs are to the float model's.

    Attributes:
        score: The fidelity metric of the task; ``agreement`` in manifests.
        snr_db: SNR of the worst output.
        task: The task's own metric against labels, if the samples are labelled.
    """

    score: Score
    snr_db: float
    task: Score | None = None

    @property
    def rank(self) -> float:
        """What candidates are compared by; greater is better. For classifiers it is the SNR, because the
        top-1 agreement of a few samples is too coarse."""
        return self.snr_db if self.rank_unit else self.score.value

    @property
    def rank_unit(self) -> str:
        """Unit of the rank: ``dB`` or ""."""
        return "" if self.score.metric == "self-mAP" else "dB"


class Evaluator:
    """Scores variants against the float model on a set of samples.

    Args:
        card: How outputs are decoded; None, or a card without a task: only the SNR is measured.
        expected: The reference outputs (the float model's) for each sample.
        labels: For each sample, or None if there are none.
    """

    def __init__(
        self, card: Card | None, expected: Sequence[Outputs], labels: Sequence[Label] | None = None
    ) -> None:
        self.expected = expected
        self.labels = labels
        self._card = card if card is not None and card.task is not None else None
        self._kind = self._card.task.kind if self._card is not None and self._card.task is not None else ""
        self._classes: list[int] = []
        self._reference_detections: list[Detections] = []
        if self._kind == "classify":
            self._classes = [self._class(outputs) for outputs in expected]
        if self._kind == "detect":
            self._reference_detections = [
                self._detections(outputs, REFERENCE_SCORE_THRESHOLD) for outputs in expected
            ]

    def evaluate(self, outputs: Sequence[Outputs]) -> Fidelity:
        """Score the outputs of a variant, one for each sample."""
        snr_db = worst_snr_db(self.expected, outputs)
        try:
            score = self._score(outputs, snr_db)
            task = self._task(outputs, self.labels) if self.labels is not None else None
        except EngineError:  # outputs that are not finite cannot be decoded
            return Fidelity(Score(self.metric, -math.inf), -math.inf)
        return Fidelity(score, snr_db, task)

    @property
    def metric(self) -> str:
        """The metric of the score. SNR for a detector if the float model detects nothing."""
        if self._kind == "classify":
            return "top-1 agreement"
        return "self-mAP" if any(len(found) for found in self._reference_detections) else "SNR"

    def _score(self, outputs: Sequence[Outputs], snr_db: float) -> Score:
        if self.metric == "self-mAP":
            found = [self._detections(each, VARIANT_SCORE_THRESHOLD) for each in outputs]
            return Score(self.metric, mean_average_precision(self._reference_detections, found) or 0.0)
        if self.metric == "top-1 agreement":
            classes = [self._class(each) for each in outputs]
            return Score(self.metric, _fraction_equal(self._classes, classes))
        return Score(self.metric, snr_db, "dB")

    def _task(self, outputs: Sequence[Outputs], labels: Sequence[Label]) -> Score | None:
        if self._kind == "classify":
            classes = [self._class(each) for each in outputs]
            return Score("top-1", _fraction_equal([label.index for label in labels], classes))
        pairs = zip(outputs, labels, strict=True)
        found = [self._detections(each, VARIANT_SCORE_THRESHOLD, label.placed) for each, label in pairs]
        value = mean_average_precision([label.boxes for label in labels], found)
        return None if value is None else Score("mAP", value)

    def _class(self, outputs: Outputs) -> int:
        assert self._card is not None
        predictions = processing.decode(self._card, outputs, NO_PLACEMENT, top=1)
        assert isinstance(predictions, Classes)
        return int(predictions.indices[0])

    def _detections(
        self, outputs: Outputs, score: float, placement: ImagePlacement | None = None
    ) -> Detections:
        """Detections in the picture's pixels, or in the input's if there is no picture."""
        assert self._card is not None
        image = self._card.image_input()
        placement = placement or ImagePlacement(image.width, image.height, image.width, image.height)
        predictions = processing.decode(self._card, outputs, placement, score=score)
        assert isinstance(predictions, Detections)
        return predictions


def _fraction_equal(a: Sequence[int], b: Sequence[int]) -> float:
    return float(np.mean(np.equal(a, b)))


def worst_snr_db(expected: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """SNR of the worst output over all samples; ``inf`` where all are equal."""
    found = []
    for name in expected[0]:
        snr_db = compare([e[name] for e in expected], [o[name] for o in outputs], 0).snr_db
        found.append(math.inf if snr_db is None else snr_db)
    return min(found)
