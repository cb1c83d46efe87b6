"""Whether a stage has become slower than it was, decided one time after the other. Decisions only, no clock.

A cumulated sum of the log likelihood ratio (Page 1954, CUSUM) between "5 % slower" and "13 % slower": what is
up to 5 % slower brings the sum down to 0 again and again, what is 15 % slower brings it to the limit.
Logarithms of times, because slowness multiplies; each is cut at the baseline's reach, for one hiccup is no
drift, however long it took.

    baseline = baseline_of(times)
    drift = Drift()
    drift, change = step(drift, baseline, seconds)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.tensors import Json

QUIET, LOUD = math.log(1.05), math.log(1.13)
LIMIT = math.log(1e6)
"""Of the sum: about one false alarm in a million excursions at 5 % (Wald's bound)."""
SUSTAINED = 50
"""Times in a row that an excursion must last before it is told."""
LEAST_SPREAD, LEAST_REACH = 0.1, 0.3
"""A baseline that was recorded in quiet promises no such quiet: its spread is taken as 10 % at least. Cut is
what is further away than 30 %, or four spreads."""
FLOOR_S = 1e-9


@dataclass(frozen=True)
class Baseline:
    """How long a stage took when all was well: mean and deviation of the logarithms of seconds."""

    centre: float
    spread: float
    samples: int

    @property
    def reach(self) -> float:
        """How far from the centre a time counts."""
        return max(LEAST_REACH, 4 * self.spread)

    def as_json(self) -> dict[str, Json]:
        return {"centre": self.centre, "spread": self.spread, "samples": self.samples}


def baseline_of(times_s: Sequence[float]) -> Baseline:
    """The baseline of some times, at least one; what is far from their median counts as the reach."""
    logs = sorted(math.log(max(time_s, FLOOR_S)) for time_s in times_s)
    median = logs[len(logs) // 2]
    deviation = sorted(abs(log - median) for log in logs)[len(logs) // 2] * 1.4826  # of a normal distribution
    reach = max(LEAST_REACH, 4 * deviation)
    cut = [min(max(log, median - reach), median + reach) for log in logs]
    centre = sum(cut) / len(cut)
    spread = math.sqrt(sum((log - centre) ** 2 for log in cut) / len(cut))
    return Baseline(centre, max(spread, LEAST_SPREAD), len(logs))


def baseline_from(table: Json) -> Baseline | None:
    """A baseline as it was recorded; None where it is none."""
    if not isinstance(table, Mapping):
        return None
    centre, spread, samples = (table.get(key) for key in ("centre", "spread", "samples"))
    if not isinstance(centre, float) or not isinstance(spread, float) or not isinstance(samples, int):
        return None
    return Baseline(centre, spread, samples) if spread >= LEAST_SPREAD and samples > 0 else None


@dataclass(frozen=True)
class Drift:
    """What is known of a stage.

    Attributes:
        score: The sum, from 0 to ``LIMIT``.
        lasted: Times since it left 0.
        excess: Sum of the logarithms over the centre since then.
        drifted: It was told as slower, and has not recovered.
    """

    score: float = 0.0
    lasted: int = 0
    excess: float = 0.0
    drifted: bool = False


def step(drift: Drift, baseline: Baseline, seconds: float) -> tuple[Drift, float | None]:
    """One time more.

    Returns:
        What is known now, and how much slower the stage is where that became certain: 0.15 is 15 %. 0.0 where
        it has recovered, None where there is nothing to tell.
    """
    reach = baseline.reach
    over = min(max(math.log(max(seconds, FLOOR_S)) - baseline.centre, -reach), reach)
    score = drift.score + (LOUD - QUIET) / baseline.spread**2 * (over - (QUIET + LOUD) / 2)
    if score <= 0:
        return Drift(), 0.0 if drift.drifted else None
    lasted, excess = drift.lasted + 1, drift.excess + over
    tells = not drift.drifted and score >= LIMIT and lasted >= SUSTAINED
    now = Drift(min(score, LIMIT), lasted, excess, drift.drifted or tells)
    return now, math.expm1(excess / lasted) if tells else None
