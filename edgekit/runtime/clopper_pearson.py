"""Upper bound of a rate that was counted (Clopper and Pearson, Biometrika 26, 1934)."""

from __future__ import annotations

import math

CONFIDENCE = 0.95


def upper_bound(events: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the rate at which so few or fewer would be seen in only a share ``1 - confidence`` of the cases.

    Args:
        confidence: One-sided, above 0 and below 1.

    >>> round(upper_bound(0, 59), 4), round(upper_bound(5, 100), 4), upper_bound(0, 0)
    (0.0495, 0.1023, 1.0)
    """
    if events >= trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        is_too_high = binomial_cdf(events, trials, middle) < 1 - confidence
        low, high = (low, middle) if is_too_high else (middle, high)
    return high


def binomial_cdf(events: int, trials: int, rate: float) -> float:
    """Compute the cumulative binomial distribution: the probability of at most ``events`` of ``trials`` at
    this rate."""
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(rate) + (trials - k) * math.log1p(-rate)
        for k in range(events + 1)
    )  # fmt: skip
    return sum(math.exp(log) for log in logs)
