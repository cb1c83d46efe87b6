"""Threshold of a deferral, with a bound on how often its results differ from the large model's.

The small model keeps a sample where its margin (edgekit/target/deferral.py) is above the threshold t. What is
bounded is the share of all inputs whose answer differs from the large model's:

    risk(t) = P(margin > t and the small model's result differs)

It falls as t rises, so thresholds can be tested in a fixed order, from "defer everything" downwards, each at
the full level, until one fails: no correction for their number is needed (fixed-sequence testing in "Learn
then Test", Angelopoulos et al., arXiv 2110.01052; for risks that fall with t it holds for all real t, "Risk-
controlling prediction sets", Bates et al., JACM 68, 2021). The test of one threshold is Clopper and Pearson's
bound. It depends on the number of differing samples above t alone, so the last threshold that passes is an
order statistic: with k the most differences among n samples whose bound is at most the limit, t is the
margin of the (k + 1)-th most certain sample that differs.

The bound holds with the stated confidence over the draw of the samples, if they are independent, come from
the inputs of later use, and neither model was fitted to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from edgekit.runtime.clopper_pearson import CONFIDENCE, binomial_cdf, upper_bound
from edgekit.tensor_spec import Array, Json

NEVER = -1.0
"""A threshold below every margin: the large model is never asked."""


@dataclass(frozen=True)
class Threshold:
    """Threshold, with its figures on the samples.

    Attributes:
        threshold: The small model keeps what has a margin above it; ``NEVER``: everything.
        limit: The requested bound, 0 to 1.
        confidence: One-sided confidence of the bound, 0 to 1.
        samples: Number of samples.
        differing: Number of samples that the small model keeps, with a result that differs.
        bound: Upper bound of that share; at most ``limit``.
        deferred: Share of the samples that the large model runs on.
    """

    threshold: float
    limit: float
    confidence: float
    samples: int
    differing: int
    bound: float
    deferred: float

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


def samples_needed(limit: float, confidence: float = CONFIDENCE) -> int:
    """Return the smallest number of samples that can prove a bound if none of them differs.

    >>> samples_needed(0.01), samples_needed(0.05)
    (299, 59)
    """
    return math.ceil(math.log(1 - confidence) / math.log1p(-limit))


def find_threshold(
    margins: Sequence[float] | Array,
    differs: Sequence[bool] | Array,
    limit: float,
    confidence: float = CONFIDENCE,
) -> Threshold | None:
    """Return the lowest threshold whose share of differing results is bounded.

    Args:
        margins: The small model's margin for each sample, 0 to 1.
        differs: Whether its result differs from the large model's, for each sample.
        limit: Maximum share of differing results, above 0 and below 1.
        confidence: Confidence of the bound, 0 to 1.

    Returns:
        None where so few samples show no such bound (``samples_needed``).
    """
    values, other = np.asarray(margins, np.float64), np.asarray(differs, bool)
    allowed = _most_differing(len(values), limit, confidence)
    if allowed < 0:
        return None
    sure = np.sort(values[other])[::-1]
    threshold = float(sure[allowed]) if len(sure) > allowed else NEVER
    is_above = values > threshold
    differing = int((is_above & other).sum())
    bound = upper_bound(differing, len(values), confidence)
    return Threshold(threshold, limit, confidence, len(values), differing, bound, float(1 - is_above.mean()))


def _most_differing(samples: int, limit: float, confidence: float) -> int:
    """Return the most differences whose bound is within the limit; -1 if even 0 exceeds it."""
    count = -1
    while count + 1 < samples and binomial_cdf(count + 1, samples, limit) <= 1 - confidence:
        count += 1
    return count
