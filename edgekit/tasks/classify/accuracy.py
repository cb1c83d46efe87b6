"""Top-1 accuracy on labelled samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.classes import read_classes
from edgekit.compiler.evaluate.label_metric import Group, LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.label import label_of
from edgekit.tensor_spec import Array

TOP = 5
"""Number of best classes of the second figure, if the labels have more classes."""


class Measured(NamedTuple):
    """Label of a sample, and the model's best classes with the score of the best one."""

    label: int
    best: tuple[int, ...]
    score: float


def measure(label: int, prediction: Classes, card: Card) -> Measured:
    """Return the label with the best classes."""
    return Measured(label, tuple(prediction.indices.tolist()), float(prediction.scores[0]))


def score(measures: Sequence[Measured], card: Card) -> Scores:
    """Compute the share of samples whose best class is the label, and the share in each class."""
    labels = np.array([one.label for one in measures])
    right = np.array([one.best[0] == one.label for one in measures])
    names = card.task.labels if card.task is not None else ()
    classes = {label_of(names, int(one)): _group(right[labels == one]) for one in np.unique(labels)}
    groups = {"class": classes}
    if len(classes) > TOP:
        among = np.array([one.label in one.best for one in measures])
        groups = {"answers": {"top-1": _group(right), f"top-{TOP}": _group(among)}, **groups}
    faults = [
        f"{label_of(names, one.best[0])} {one.score:.2f}, labelled {label_of(names, one.label)}"
        for one in measures
    ]
    errors = np.where(right, 0.0, [one.score for one in measures])

    def share(weights: Array) -> float:
        return float(weights @ right / weights.sum())

    return Scores(share, errors, faults, len(right), int(right.sum()), groups)


def _group(right: Array) -> Group:
    return Group(float(right.mean()), len(right))


ACCURACY = LabelMetric("top-1", "samples", read_classes, measure, score, options={"top": TOP})
