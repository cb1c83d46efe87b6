"""Score of the float model on labelled samples, decoded as its card says.

It is worth nothing if an upper bound of the score is below ``NOTHING``. A working model with the right card
is far above, also on few samples; with another scale of pixels YOLOX-nano's mAP is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.bundle.label_text import score_text
from edgekit.compiler.evaluate.average_precision import (
    box_overlaps,
    mean_average_precision,
    upper_average_precision,
)
from edgekit.compiler.evaluate.fidelity import whole_input
from edgekit.compiler.evaluate.labels import NO_BOXES, Label
from edgekit.compiler.evaluate.proof import NOTHING
from edgekit.errors import EngineError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.tensor_spec import Array, Json

SHIFTED = 0.5
"""Lower bound of the share that is right with shifted class numbers: a swap of two classes
shifts half of the samples."""
SAME = 0.5
"""Least intersection over union of a detection and the object that it finds."""


@dataclass(frozen=True)
class LabelScore:
    """Score of the float model on labelled samples.

    Attributes:
        metric: ``mAP`` or ``top-1``.
        value: The score, 0 to 1. An mAP counts detections above the card's score.
        upper: One-sided 95 % upper bound of ``value``; None if an mAP is so high that it was not computed.
        right: Number of labelled objects that it finds, or of samples that it classifies correctly.
        labelled: Number of labelled objects or samples.
        numbering: Evidence that the labels number the classes in another way; "" if there is none.
    """

    metric: str
    value: float
    upper: float | None
    samples: int
    right: int
    labelled: int
    numbering: str = ""

    @property
    def is_nothing(self) -> bool:
        """Return whether the model is proved to be worth nothing on these labels."""
        return self.upper is not None and self.upper < NOTHING[self.metric]

    @property
    def works(self) -> bool:
        """Return whether the score itself reaches the bound."""
        return self.value >= NOTHING[self.metric]

    def as_json(self) -> dict[str, Json]:
        return {
            "metric": self.metric,
            "value": round(self.value, 4),
            "upper": None if self.upper is None else round(self.upper, 4),
            "samples": self.samples,
            "right": self.right,
            "labelled": self.labelled,
            "numbering": self.numbering,
        }

    def __str__(self) -> str:
        return score_text(self.as_json())


def score_on_labels(
    card: Card, outputs: Sequence[Mapping[str, Array]], labels: Sequence[Label]
) -> LabelScore | None:
    """Score the model's outputs, one for each label; None if no object is labelled.

    Args:
        card: Card with a task that has labels (edgekit/compiler/evaluate/labels.py).
    """
    decoded = _decode_all(card, outputs, labels)
    return _of_classes(decoded, labels) if _has_classes(card) else _of_boxes(decoded, labels)


def right_by_sample(card: Card, outputs: Sequence[Mapping[str, Array]], labels: Sequence[Label]) -> list[int]:
    """Count what the model gets right in each sample: its class, or the labelled objects that it finds."""
    decoded = _decode_all(card, outputs, labels)
    pairs = zip(decoded, labels, strict=True)
    if _has_classes(card):
        return [int(_best(prediction) == label.index) for prediction, label in pairs]
    return [_matched(boxes, label.boxes) for boxes, label in pairs]


def _has_classes(card: Card) -> bool:
    return card.task is not None and card.task.kind == "classify"


def _decode_all(card: Card, outputs: Sequence[Mapping[str, Array]], labels: Sequence[Label]) -> list[Any]:
    """Decode the prediction of each sample; None or NO_BOXES if the outputs do not fit the card."""
    options, failed = ({"top": 1}, None) if _has_classes(card) else ({}, NO_BOXES)
    decoded = []
    for result, label in zip(outputs, labels, strict=True):
        try:
            decoded.append(processing.decode(card, result, label.placed or whole_input(card), **options))
        except EngineError:
            decoded.append(failed)
    return decoded


def _best(prediction: Classes | None) -> int:
    return -1 if prediction is None else int(prediction.indices[0])


def _of_classes(decoded: Sequence[Classes | None], labels: Sequence[Label]) -> LabelScore:
    best, truth = np.array([*map(_best, decoded)]), np.array([label.index for label in labels])
    right, count = int((best == truth).sum()), len(truth)
    shifts, counts = np.unique((best - truth)[best >= 0], return_counts=True)
    numbering = ""
    if len(shifts) and shifts[counts.argmax()]:
        shift, shifted = int(shifts[counts.argmax()]), int(counts.max())
        if 1 - upper_bound(count - shifted, count) >= SHIFTED:
            numbering = f"{shifted} are right with class numbers shifted by {shift:+d}"
    return LabelScore("top-1", right / count, upper_bound(right, count), count, right, count, numbering)


def _of_boxes(detections: Sequence[Detections], labels: Sequence[Label]) -> LabelScore | None:
    truth = [label.boxes for label in labels]
    value = mean_average_precision(truth, detections)
    if value is None:
        return None
    right = sum(_matched(picture, boxes) for picture, boxes in zip(detections, truth, strict=True))
    labelled, numbering, upper = sum(map(len, truth)), "", None
    if value < NOTHING["mAP"]:
        upper = upper_average_precision(truth, detections)
        one_class = mean_average_precision(_of_one_class(truth), _of_one_class(detections)) or 0.0
        if one_class >= NOTHING["mAP"]:
            numbering = f"the mAP is {one_class:.3f} if classes are ignored"
    return LabelScore("mAP", value, upper, len(labels), right, labelled, numbering)


def _of_one_class(pictures: Sequence[Detections]) -> list[Detections]:
    return [Detections(boxes.boxes, boxes.scores, np.zeros_like(boxes.classes)) for boxes in pictures]


def _matched(detections: Detections, truth: Detections) -> int:
    """Count the labelled objects with a detection of their class in their place."""
    if not len(detections) or not len(truth):
        return 0
    overlaps = box_overlaps(detections, np.arange(len(detections)), truth, np.arange(len(truth)))
    same = (overlaps >= SAME) & (detections.classes[:, None] == truth.classes[None])
    return int(same.any(axis=0).sum())
