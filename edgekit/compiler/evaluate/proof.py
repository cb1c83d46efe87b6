"""Statistics of a comparison with the float model: what the samples prove, at one-sided 95 % each.

A proportion of the samples has the bounds of Clopper and Pearson, a loss on labels those of a bootstrap over
the samples, everything else those of random halves of them. Equal samples have an interval without width, so
a task has a least number of samples (task_metric.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edgekit.compiler.evaluate.average_precision import (
    RESAMPLES,
    bootstrap,
    mean_average_precision,
    resample_average_precision,
)
from edgekit.compiler.evaluate.task_metric import TaskMetric
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime.clopper_pearson import CONFIDENCE, binomial_cdf, upper_bound
from edgekit.tensor_spec import Array

SURE_MARGIN = 0.1
"""Margin above which the float model is sure of its answer, e.g. between the probabilities of two classes."""
TAIL = 0.05
NOTHING = {"mAP": 0.05, "top-1": 0.25}
"""Metric on labels -> score below which a model is worth nothing, or the labels are another model's."""
MANY_SAMPLES = 128
"""Number of samples that a limit of a metric with a ``halving_gain`` holds for."""
SEARCHED = 4096
"""Largest number of samples that a prediction of the necessary number reaches."""

SPLIT_SAMPLES = 128
"""Largest number of samples of a build that are split. Further ones make the test prove more and cost no
search."""
TEST_SHARE = 3
"""One of so many split samples is a test sample, and so is every further one."""
USED_SAMPLES = SPLIT_SAMPLES + 64
"""The most samples of the user that a build uses, spread evenly over all of them. 64 more than are split:
then a classifier that passes has a lower end of .90."""


def samples_with_test(count: int) -> int:
    """Return the least number of a build's samples of which ``count`` are test samples.

    >>> [samples_with_test(count) for count in (1, 43, 44, 107)]
    [2, 128, 129, 192]
    """
    most = (SPLIT_SAMPLES + 1) // TEST_SHARE
    return TEST_SHARE * min(count, most) - 1 + max(count - most, 0)


class Changes(NamedTuple):
    """Number of answers that a variant changes.

    Attributes:
        changed: Number of samples with another answer.
        sure_changed: Number of those with a margin above SURE_MARGIN.
        sure: Number of samples with such a margin.
    """

    changed: int
    total: int
    sure_changed: int
    sure: int


class Loss(NamedTuple):
    """Loss of the task's own metric on labels, as a share of the float model's score.

    Attributes:
        value: Observed loss; below 0 for a gain.
    """

    value: float
    low: float
    high: float


class Proof(NamedTuple):
    """Evidence for a score.

    Attributes:
        objects: Number of the float model's objects in them; 0 if the metric does not count them.
        low: Lower end of the score, 0 to 1.
        loss: Loss on labels; None without labels.
    """

    samples: int
    objects: int
    low: float
    loss: Loss | None = None


def count_changes(metric: TaskMetric, reference: Sequence[Any], predictions: Sequence[Any]) -> Changes | None:
    """Count the answers that a variant changes; None if the metric is not a proportion of the samples."""
    if metric.margin is None:
        return None
    scores = [metric.compare([a], [b]) for a, b in zip(reference, predictions, strict=True)]
    changed = np.array([score != 1 for score in scores])
    sure = np.array([metric.margin(prediction) > SURE_MARGIN for prediction in reference])
    return Changes(int(changed.sum()), len(changed), int((changed & sure).sum()), int(sure.sum()))


def lowest_score(metric: TaskMetric, reference: Sequence[Any], predictions: Sequence[Any]) -> float:
    """Compute the lower end of a variant's score, on MANY_SAMPLES if fewer flatter.

    A score of all samples is as far from the true one as that of a random half is from that of all. A
    bootstrap of a self-mAP is too narrow, because a detection ranks with its own copies: on 21 photographs
    YOLOX-nano's standard deviation is .015, that of a bootstrap .009, of halves .012.
    """
    changes = count_changes(metric, reference, predictions)
    if changes is not None:
        return 1 - upper_bound(changes.changed, changes.total)
    if metric.resample is not None:
        value = metric.compare(reference, predictions) or 0.0
        scores = metric.resample(reference, predictions, _halves(len(reference)))
    else:
        each = [metric.compare([a], [b]) for a, b in zip(reference, predictions, strict=True)]
        known = np.array([score for score in each if score is not None])
        value, halves = float(known.mean()), _halves(len(known))
        scores = halves @ known / halves.sum(axis=1)
    flattery = metric.halving_gain * max(math.log2(MANY_SAMPLES / len(reference)), 0.0)
    return 2 * value - float(np.quantile(scores, 1 - TAIL)) - flattery


def _halves(count: int) -> Array:
    """Return RESAMPLES random halves of samples, which count 1, the others 0: int64 [RESAMPLES, count]."""
    order = np.random.default_rng(0).random((RESAMPLES, count)).argsort(axis=1)
    return (order < (count + 1) // 2).astype(np.int64)


def lost_answers(right: Array, still_right: Array) -> Loss | None:
    """Compute the loss of right answers; None if the float model is worth nothing on these labels.

    Args:
        right: Whether the float model's answer is right: bool [samples].
        still_right: The same of the variant.
    """
    count, base = len(right), int(right.sum())
    if base < NOTHING["top-1"] * count:
        return None
    lost, gained = int((right & ~still_right).sum()), int((still_right & ~right).sum())
    high = upper_bound(lost, count) - (1 - upper_bound(count - gained, count))
    low = (1 - upper_bound(count - lost, count)) - upper_bound(gained, count)
    return Loss((lost - gained) / base, low * count / base, high * count / base)


def lost_precision(
    truth: Sequence[Detections], reference: Sequence[Detections], detections: Sequence[Detections]
) -> Loss | None:
    """Compute the loss of mAP on labelled boxes; None if the float model is worth nothing on these labels."""
    base = mean_average_precision(truth, reference)
    if base is None or base < NOTHING["mAP"]:
        return None
    value = mean_average_precision(truth, detections) or 0.0
    weights = bootstrap(len(truth))
    one, other = (resample_average_precision(truth, boxes, weights) for boxes in (reference, detections))
    losses = 1 - other / np.maximum(one, 1e-9)
    low, high = np.quantile(losses, [TAIL, 1 - TAIL])
    return Loss(1 - value / base, float(low), float(high))


def more_to_count(changed: int, total: int, low: float) -> int:
    """Return how many more samples give a rate of changes like this one the lower end ``low``; 0 if these do.

    >>> more_to_count(0, 21, 0.9), more_to_count(1, 43, 0.9), more_to_count(0, 64, 0.9)
    (8, 3, 0)
    """
    rate, allowed = changed / total, 1 - low
    if rate >= allowed:  # no number of samples proves less than what is observed
        return max(SEARCHED - total, 0)
    # The upper bound is at most ``allowed`` if so few changes are as rare as that at this rate.
    sizes = (n for n in range(total, SEARCHED) if binomial_cdf(round(rate * n), n, allowed) < 1 - CONFIDENCE)
    return next(sizes, SEARCHED) - total
