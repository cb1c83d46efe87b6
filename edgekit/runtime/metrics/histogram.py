"""A histogram of durations in constant memory.

    histogram = Histogram()
    histogram.record(0.0123)                 # seconds
    histogram.quantile(0.95)

Base-2 exponential buckets of scale 4, as OpenTelemetry's data model defines them (exponential histogram):
bucket i holds values above 2 ** (i / 16) and up to 2 ** ((i + 1) / 16), so buckets are 4.4 % wide at any
magnitude. Histograms of several stages, threads or devices add up without loss. The limits exported to
Prometheus are boundaries of these buckets.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from math import ceil, log2
from typing import Any

from edgekit.tensor_spec import Json

SCALE = 4
PER_DOUBLING = 2**SCALE
LEAST_POWER, MOST_POWER = -30, 14
"""Range of the buckets: 2 ** -30 s, a nanosecond, to 2 ** 14 s, four and a half hours."""
BUCKETS = (MOST_POWER - LEAST_POWER) * PER_DOUBLING
FIRST_INDEX = LEAST_POWER * PER_DOUBLING
LEAST, MOST = 2.0**LEAST_POWER, 2.0**MOST_POWER
LIMITS = (
    *range(-17 * PER_DOUBLING, -14 * PER_DOUBLING, PER_DOUBLING),
    *range(-14 * PER_DOUBLING, 5 * PER_DOUBLING, 2),
    *range(5 * PER_DOUBLING, 7 * PER_DOUBLING, PER_DOUBLING),
)
"""Limits for Prometheus, as indices of buckets: eight in a doubling from 61 us to 32 s, so that a quantile
lies within 9.1 %, and powers of 2 from 8 us to 64 s. They are fixed, because Prometheus adds up those of
several devices."""


class Histogram:
    """Counts by bucket. Not thread-safe: use one per thread and ``add``, or a lock."""

    __slots__ = ("_counts", "count", "high", "low", "sum", "zeros")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * BUCKETS))
        self.count = 0
        self.sum = 0.0
        self.low = math.inf
        self.high = 0.0
        self.zeros = 0

    def record(self, value: float) -> None:
        """Add one value, by convention in seconds. Values beyond 2 ** 14 share the last bucket.

        Raises:
            ValueError: it is negative, infinite or not a number.
        """
        if LEAST < value <= MOST:
            self._counts[ceil(log2(value) * 16) - 1 - FIRST_INDEX] += (
                1  # 16: PER_DOUBLING; a name costs 20 ns
            )
        else:
            self._record_beyond(value)
        self.count += 1
        self.sum += value
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value

    def _record_beyond(self, value: float) -> None:
        if not 0 <= value < math.inf:
            raise ValueError(f"a histogram needs numbers of 0 or more, not {value}")
        if value <= LEAST:
            self.zeros += 1
        else:
            self._counts[BUCKETS - 1] += 1

    def quantile(self, q: float) -> float:
        """Return the quantile ``q``, within 2.2 %; 0 if empty.

        It is the middle of the bucket that holds the value of rank ceil(q x count), clipped to the minimum
        and maximum recorded.
        """
        rank = max(1, ceil(q * self.count))
        passed = self.zeros
        if self.count == 0 or passed >= rank:
            return 0.0
        for index, count in enumerate(self._counts):
            passed += count
            if passed >= rank:
                middle: float = 2.0 ** ((FIRST_INDEX + index + 0.5) / PER_DOUBLING)
                return min(max(middle, self.low), self.high)
        raise AssertionError("counts add up")

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for index, count in enumerate(other._counts):
            if count:
                self._counts[index] += count
        self.count += other.count
        self.sum += other.sum
        self.zeros += other.zeros
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def copy(self) -> Histogram:
        """Return an independent copy."""
        duplicate = Histogram()
        duplicate.add(self)
        return duplicate

    def clear(self) -> None:
        """Reset."""
        self.__init__()  # type: ignore[misc]

    def as_json(self) -> dict[str, Json]:
        """Count, sum, extremes, p50, p95, p99, and the buckets as OTLP's exponential histogram has them."""
        used = [index for index, count in enumerate(self._counts) if count]
        start, end = (used[0], used[-1] + 1) if used else (0, 0)
        return {
            "count": self.count,
            "sum": self.sum,
            "min": self.low if self.count else 0.0,
            "max": self.high,
            **{f"p{round(100 * q)}": self.quantile(q) for q in (0.5, 0.95, 0.99)},
            "scale": SCALE,
            "zero_count": self.zeros,
            "offset": FIRST_INDEX + start,
            "bucket_counts": list(self._counts[start:end]),
        }


def at_most(entry: Mapping[str, Any]) -> Iterator[tuple[float, int]]:
    """Yield the cumulative counts at LIMITS of a histogram in JSON: a limit, and the number of values that
    are at most that."""
    counts, passed, index = entry["bucket_counts"], entry["zero_count"], 0
    for limit in LIMITS:
        end = max(index, min(limit - entry["offset"], len(counts)))
        passed += sum(counts[index:end])
        index = end
        yield 2.0 ** (limit / PER_DOUBLING), passed


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Json]:
    """Return the count, sum and buckets of two histograms in JSON together."""
    offset = min(one["offset"], other["offset"])
    end = max(entry["offset"] + len(entry["bucket_counts"]) for entry in (one, other))
    counts = [0] * (end - offset)
    for entry in (one, other):
        for index, count in enumerate(entry["bucket_counts"], entry["offset"] - offset):
            counts[index] += count
    sums: dict[str, Json] = {name: one[name] + other[name] for name in ("count", "sum", "zero_count")}
    return {**sums, "offset": offset, "bucket_counts": counts}
