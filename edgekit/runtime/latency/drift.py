"""Detect that a stage has become slower. Pure decisions, one measurement at a time; the caller has the clock.

CUSUM (Page 1954): a cumulative sum of the log likelihood ratio between "5 % slower" and "13 % slower". Up to
5 % the sum keeps returning to 0; at 15 % it reaches the limit. Times are compared as logarithms, because
slowdowns multiply, and each is clipped at the baseline's reach, so one outlier is not taken for drift.

    baseline = baseline_of(times)
    drift = DriftState()
    drift, change = step(drift, baseline, seconds, time.monotonic())
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.tensor_spec import Json

TOLERATED, DRIFTED = math.log(1.05), math.log(1.13)
LIMIT = math.log(1e6)
"""Of the sum: about one false alarm in a million excursions at 5 % (Wald's bound)."""
SUSTAINED, SUSTAINED_S = 50, 2.0
"""Consecutive measurements, and seconds, that an excursion must last before it is reported, and seconds that
its end must last: 50 runs of half a millisecond are over before another process has finished its turn."""
LEAST_SPREAD, LEAST_REACH = 0.1, 0.3
"""A baseline may have been recorded on an idle device: its spread is taken as at least 10 %. Values beyond 30
%, or four spreads, are clipped."""
FLOOR_S = 1e-9


@dataclass(frozen=True)
class Baseline:
    """Normal times of a stage: mean and standard deviation of the logarithms of seconds."""

    centre: float
    spread: float
    samples: int

    @property
    def reach(self) -> float:
        """Distance from the centre at which values are clipped."""
        return max(LEAST_REACH, 4 * self.spread)

    def as_json(self) -> dict[str, Json]:
        return {"centre": self.centre, "spread": self.spread, "samples": self.samples}


def baseline_of(times_s: Sequence[float]) -> Baseline:
    """Return the baseline of at least one time; outliers from the median are clipped."""
    logs = sorted(math.log(max(time_s, FLOOR_S)) for time_s in times_s)
    median = logs[len(logs) // 2]
    deviation = (
        sorted(abs(log - median) for log in logs)[len(logs) // 2] * 1.4826
    )  # MAD of a normal distribution
    reach = max(LEAST_REACH, 4 * deviation)
    cut = [min(max(log, median - reach), median + reach) for log in logs]
    centre = sum(cut) / len(cut)
    spread = math.sqrt(sum((log - centre) ** 2 for log in cut) / len(cut))
    return Baseline(centre, max(spread, LEAST_SPREAD), len(logs))


def baseline_from(table: Json) -> Baseline | None:
    """Return a stored baseline; None if invalid."""
    if not isinstance(table, Mapping):
        return None
    centre, spread, samples = (table.get(key) for key in ("centre", "spread", "samples"))
    if not isinstance(centre, float) or not isinstance(spread, float) or not isinstance(samples, int):
        return None
    return Baseline(centre, spread, samples) if spread >= LEAST_SPREAD and samples > 0 else None


@dataclass(frozen=True)
class DriftState:
    """The state of a stage.

    Attributes:
        score: The sum, from 0 to ``LIMIT``.
        lasted: Measurements since it left 0.
        since_s: When it left 0, or was last at ``LIMIT`` if it has drifted.
        excess: Sum of the logarithms over the centre since then.
    """

    score: float = 0.0
    lasted: int = 0
    since_s: float = 0.0
    excess: float = 0.0
    drifted: bool = False


def step(
    drift: DriftState, baseline: Baseline, seconds: float, now_s: float
) -> tuple[DriftState, float | None]:
    """Add one measurement.

    Returns:
        The new state, and a change to report: 0.15 if the stage has become 15 % slower, 0.0 if it has
        recovered, None if there is nothing to report.
    """
    reach = baseline.reach
    deviation = min(max(math.log(max(seconds, FLOOR_S)) - baseline.centre, -reach), reach)
    score = drift.score + (DRIFTED - TOLERATED) / baseline.spread**2 * (deviation - (TOLERATED + DRIFTED) / 2)
    if score <= 0:
        if drift.drifted and now_s - drift.since_s < SUSTAINED_S:
            return DriftState(since_s=drift.since_s, drifted=True), None
        return DriftState(), 0.0 if drift.drifted else None
    began = drift.score == 0
    lasted, excess = (1, deviation) if began else (drift.lasted + 1, drift.excess + deviation)
    since_s = now_s if began and not drift.drifted else drift.since_s
    is_long = lasted >= SUSTAINED and now_s - since_s >= SUSTAINED_S
    reports = not drift.drifted and score >= LIMIT and is_long
    drifted = drift.drifted or reports
    if drifted and score >= LIMIT:
        since_s = now_s
    now = DriftState(min(score, LIMIT), lasted, since_s, excess, drifted)
    return now, math.expm1(excess / lasted) if reports else None
