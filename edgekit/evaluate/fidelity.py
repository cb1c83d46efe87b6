"""How well a variant agrees with the float model, in the terms of its task.

    detect     self-mAP: mAP of the variant's detections, the float model's own (score > .25) being the truth
    classify   top-1 agreement: the part of the samples on which both name the same class
    otherwise  SNR of the worst output in dB (edgekit/evaluate/verify.py)

None of them needs a label. The SNR of raw outputs is a false guide for a detector, most of whose output is
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

SURE = 0.25
"""Score above which the float model's detections count as truth."""
UNSURE = 0.01
"""Score above which a variant's detections count: what it finds late costs precision only there."""
NOWHERE = ImagePlacement(1, 1, 1, 1)
"""A class is nowhere in the picture."""


@dataclass(frozen=True)
class Score:
    """One figure.

    Attributes:
        metric: What was measured: ``self-mAP``, ``top-1 .score``, ``mAP``, ``top-1`` or ``SNR``.
        value: 0 to 1, or decibels; ``inf`` where the outputs are equal, ``-inf`` where they are not numbers.
        unit: ``dB`` or "".
    """

    metric: str
    value: float
    unit: str = ""

    def as_json(self) -> Figure:
        """JSON has no infinity: None."""
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
    """What a variant's outputs are worth.

    Attributes:
        score: With the float model, in the terms of the task.
        snr_db: Of the worst output.
        task: The task's own metric, where the samples are labelled.
    """

    score: Score
    snr_db: float
    task: Score | None = None

    @property
    def rank(self) -> float:
        """What candidates are compared by: greater is better. A few samples name few classes, so where the
        agreement is one of classes, the SNR decides."""
        return self.snr_db if self.rank_unit else self.score.value

    @property
    def rank_unit(self) -> str:
        """``dB`` or ""."""
        return "" if self.score.metric == "self-mAP" else "dB"


class Evaluator:
    """Scores variants on some samples.

    Args:
        card: What the outputs mean; None, or one without a task: only the SNR is measured.
        expected: The float model's outputs for each sample.
        labels: What is in each sample, or None where nobody says.
    """

    def __init__(
        self, card: Card | None, expected: Sequence[Outputs], labels: Sequence[Label] | None = None
    ) -> None:
        self.expected = expected
        self.labels = labels
        self._card = card if card is not None and card.task is not None else None
        self._kind = self._card.task.kind if self._card is not None and self._card.task is not None else ""
        self._classes: list[int] = []
        self._truth: list[Detections] = []
        if self._kind == "classify":
            self._classes = [self._class(outputs) for outputs in expected]
        if self._kind == "detect":
            self._truth = [self._detections(outputs, SURE) for outputs in expected]

    def evaluate(self, outputs: Sequence[Outputs]) -> Fidelity:
        """Score the outputs of a variant for each sample."""
        snr_db = worst_snr_db(self.expected, outputs)
        try:
            score = self._score(outputs, snr_db)
            task = self._task(outputs, self.labels) if self.labels is not None else None
        except EngineError:  # not finite: there is no answer
            return Fidelity(Score(self.metric, -math.inf), -math.inf)
        return Fidelity(score, snr_db, task)

    @property
    def metric(self) -> str:
        """The metric of the agreement. Where the float model finds nothing, nothing can be missed: SNR."""
        if self._kind == "classify":
            return "top-1 agreement"
        return "self-mAP" if any(len(found) for found in self._truth) else "SNR"

    def _score(self, outputs: Sequence[Outputs], snr_db: float) -> Score:
        if self.metric == "self-mAP":
            found = [self._detections(each, UNSURE) for each in outputs]
            return Score(self.metric, mean_average_precision(self._truth, found) or 0.0)
        if self.metric == "top-1 agreement":
            found_classes = [self._class(each) for each in outputs]
            return Score(self.metric, _part_equal(self._classes, found_classes))
        return Score(self.metric, snr_db, "dB")

    def _task(self, outputs: Sequence[Outputs], labels: Sequence[Label]) -> Score | None:
        if self._kind == "classify":
            classes = [self._class(each) for each in outputs]
            return Score("top-1", _part_equal([label.index for label in labels], classes))
        pairs = zip(outputs, labels, strict=True)
        found = [self._detections(each, UNSURE, label.placed) for each, label in pairs]
        value = mean_average_precision([label.boxes for label in labels], found)
        return None if value is None else Score("mAP", value)

    def _class(self, outputs: Outputs) -> int:
        assert self._card is not None
        answer = processing.decode(self._card, outputs, NOWHERE, top=1)
        assert isinstance(answer, Classes)
        return int(answer.indices[0])

    def _detections(self, outputs: Outputs, score: float, placed: ImagePlacement | None = None) -> Detections:
        """In the frame's pixels, or in the input's where no frame is known."""
        assert self._card is not None
        image = self._card.image_input()
        placed = placed or ImagePlacement(image.width, image.height, image.width, image.height)
        answer = processing.decode(self._card, outputs, placed, score=score)
        assert isinstance(answer, Detections)
        return answer


def _part_equal(a: Sequence[int], b: Sequence[int]) -> float:
    return float(np.mean(np.equal(a, b)))


def worst_snr_db(expected: Sequence[Outputs], outputs: Sequence[Outputs]) -> float:
    """SNR of the worst output over all samples; ``inf`` where all are equal."""
    found = []
    for name in expected[0]:
        snr_db = compare([e[name] for e in expected], [o[name] for o in outputs], 0).snr_db
        found.append(math.inf if snr_db is None else snr_db)
    return min(found)
