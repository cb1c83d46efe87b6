"""mIoU of class maps on masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.masks import CLASS_MAPS, read_mask, read_masks
from edgekit.compiler.evaluate.label_metric import Group, LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.label import label_of
from edgekit.processing.predictions.segment import ClassMap
from edgekit.tensor_spec import Array

CLASSES_LIMIT = 4096
"""Largest class number of a mask."""


class Measured(NamedTuple):
    """Pixels of each class: those that are right, labelled and predicted, int64 [classes]."""

    right: Array
    labelled: Array
    predicted: Array


def measure(mask: Path, prediction: ClassMap, card: Card) -> Measured:
    """Count the pixels of each class.

    Raises:
        SampleError: the mask can't be read, or has another size than the photograph.
    """
    truth = read_mask(mask, prediction.classes, card)
    counts = (truth >= 0) & (truth < CLASSES_LIMIT)
    labelled, predicted = truth[counts], prediction.classes[counts].astype(np.int64)
    of_right = labelled[labelled == predicted]
    return Measured(*(np.bincount(values, minlength=1) for values in (of_right, labelled, predicted)))


def score(measures: Sequence[Measured], card: Card) -> Scores:
    """Compute the mean over the labelled classes of the IoU, over the pixels of all photographs together."""
    count = max(len(counts) for one in measures for counts in one)
    right, labelled, predicted = (
        np.stack([np.pad(one[part], (0, count - len(one[part]))) for one in measures]) for part in range(3)
    )

    def by_class(weights: Array) -> Array:
        """Return the IoU of each class; NaN if it is not labelled."""
        both, theirs, ours = weights @ right, weights @ labelled, weights @ predicted
        return np.where(theirs > 0, both / np.maximum(theirs + ours - both, 1), np.nan)

    def mean(weights: Array) -> float | None:
        values = by_class(weights)
        return None if np.isnan(values).all() else float(np.nanmean(values))

    names = card.task.labels if card.task is not None else ()
    values, pixels = by_class(np.ones(len(measures), np.int64)), labelled.sum(axis=0)
    classes = {
        label_of(names, int(index)): Group(float(values[index]), int(pixels[index]))
        for index in np.flatnonzero(pixels)
    }
    errors = 1 - right.sum(axis=1) / np.maximum(labelled.sum(axis=1), 1)
    faults = [f"{error:.1%} of the pixels wrong" for error in errors]
    return Scores(mean, errors, faults, int(pixels.sum()), groups={"class": classes})


ACCURACY = LabelMetric("mIoU", "pixels", read_masks, measure, score, label_folders=CLASS_MAPS.folders)
