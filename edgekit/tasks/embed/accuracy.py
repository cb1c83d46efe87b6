"""Order of pairs by their cosine similarity: the AUC of same and different pairs, or the rank correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_files.pairs import read_pairs
from edgekit.compiler.evaluate.label_metric import LabelMetric, Scores
from edgekit.processing.card import Card
from edgekit.processing.predictions.embed import Embedding
from edgekit.tensor_spec import Array


class Measured(NamedTuple):
    """Labelled similarity of a pair, and the cosine of its embeddings."""

    label: float
    cosine: float


def measure(label: float, prediction: Sequence[Embedding], card: Card) -> Measured:
    """Return the label with the cosine of the pair's embeddings."""
    first, second = prediction
    return Measured(label, first.cosine(second))


def score(measures: Sequence[Measured], card: Card) -> Scores:
    """Compute how well cosines order the pairs.

    If all labels are 0 or 1: the area under the ROC curve, the probability that a same pair has a larger
    cosine than a different one. Otherwise Spearman's rank correlation, as for semantic textual similarity.
    """
    labels, cosines = (np.array(values) for values in zip(*measures, strict=True))
    order = _auc if set(labels.tolist()) <= {0.0, 1.0} else _spearman

    def value(weights: Array) -> float | None:
        drawn = np.repeat(np.arange(len(labels)), weights)
        return order(labels[drawn], cosines[drawn])

    ranks = [_ranks(array) / len(array) for array in (labels, cosines)]
    faults = [f"cosine {one.cosine:.2f}, labelled {one.label:g}" for one in measures]
    return Scores(value, np.abs(ranks[0] - ranks[1]), faults, len(measures))


def _auc(labels: Array, cosines: Array) -> float | None:
    same = labels == 1
    pairs = int(same.sum()) * int((~same).sum())
    if not pairs:
        return None
    count = int(same.sum())
    return float((_ranks(cosines)[same].sum() - count * (count + 1) / 2) / pairs)


def _spearman(labels: Array, cosines: Array) -> float | None:
    first, second = (_ranks(array) - (len(array) + 1) / 2 for array in (labels, cosines))
    length = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / length if length else None


def _ranks(values: Array) -> Array:
    """Return the rank of each value, from 1; equal values have the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


ACCURACY = LabelMetric("pair order", "pairs", read_pairs, measure, score)
