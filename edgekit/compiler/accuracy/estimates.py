"""A metric on labelled samples with a 95 % interval.

A share of the samples has the interval of Clopper and Pearson. Any other metric has the percentile interval
of a bootstrap over samples (Efron and Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13). A
bootstrap of equal samples has no width; there too Clopper and Pearson's bound is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.compiler.evaluate.label_metric import Scores
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.tensor_spec import Array, Json

RESAMPLES = 400
"""Resamples of a bootstrap: ten of them are outside of each end."""
CONFIDENCE = 0.95
"""Confidence of an interval, half of the rest on each side."""
ONE_SIDED = 1 - (1 - CONFIDENCE) / 2


class Estimate(NamedTuple):
    """Value with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def as_json(self) -> dict[str, Json]:
        return {name: round(value, 5) for name, value in self._asdict().items()}


class Resampled(NamedTuple):
    """A metric, and its values on the resamples; NaN where no sample was labelled."""

    estimate: Estimate
    values: Array


def resamples(count: int) -> Array:
    """Return how often each sample is in each resample: int64 [RESAMPLES, count]. The same for all variants,
    so that their values can be paired."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(count, size=(RESAMPLES, count))
    return np.stack([np.bincount(row, minlength=count) for row in chosen])


def estimate(scores: Scores, draws: Sequence[Array] | Array) -> Resampled | None:
    """Estimate a metric from its scores; None if nothing is labelled.

    Args:
        scores: Scores on the samples.
        draws: Result of :func:`resamples`, or an iterable over it.
    """
    count = len(scores.errors)
    value = scores.value(np.ones(count, np.int64))
    if value is None:
        return None
    drawn = (scores.value(weights) for weights in draws)
    values = np.array([np.nan if one is None else one for one in drawn])
    if scores.right is not None:
        low = 1 - upper_bound(count - scores.right, count, ONE_SIDED)
        high = upper_bound(scores.right, count, ONE_SIDED)
    else:
        low, high = _percentiles(values)
        if low == high:
            margin = upper_bound(0, scores.labelled, ONE_SIDED)
            low, high = (0.0, margin) if value <= 0 else (max(0.0, value - margin), value)
    return Resampled(Estimate(value, low, high), values)


def loss(reference: Resampled, variant: Resampled, scores: Scores, is_error: bool) -> Estimate:
    """Estimate how much worse a variant is, by the differences on each resample.

    Args:
        reference: Metric of the reference.
        variant: Metric of the variant on the same samples.
        scores: Scores of the variant.
        is_error: Whether more is worse.
    """
    sign = -1 if is_error else 1
    differences = sign * (reference.values - variant.values)
    low, high = _percentiles(differences)
    if low == high == 0 and scores.right is not None:  # no sample changed
        high = upper_bound(0, len(scores.errors), ONE_SIDED)
        low = -high
    return Estimate(sign * (reference.estimate.value - variant.estimate.value), low, high)


def _percentiles(values: Array) -> tuple[float, float]:
    low, high = np.nanquantile(values, [1 - ONE_SIDED, ONE_SIDED])
    return float(low), float(high)
