"""Which measured candidates to ship: the Pareto front of time and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgekit.compiler.evaluate.fidelity import Score
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    MIN_GAIN,
    QUICK,
    CandidateConfig,
    Measurement,
)

MAX_POINTS = 3
"""At most this many points of a Pareto front are shipped, the fastest first."""


def pareto_front(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The candidates worth shipping, the fastest first; each slower one is more accurate by MIN_GAIN.

    Only candidates that are faster than the parent; of two that differ by less than timing noise, the more
    accurate one. If none could be timed: the one with the best ``untimed_score``.
    """
    usable = [m for m in measurements if m.faster]
    if usable and all(m.ratio is None for m in usable):
        return [best_untimed(usable)]
    kept: list[Measurement] = []
    # From the most accurate down: each must be faster than all before it.
    for each in sorted(usable, key=lambda m: (-m.rank, m.time)):
        if not kept or each.time <= FASTER * kept[-1].time:
            kept.append(each)
    # From the fastest up: each must be more accurate than the one before it, which is not saturated.
    points: list[Measurement] = []
    for each in reversed(kept):
        if not points or (not points[-1].saturated and each.rank >= points[-1].rank + MIN_GAIN[each.unit]):
            points.append(each)
    return points[:MAX_POINTS]


def with_better_times(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The measurements, with the time of another recipe in place of a rough one, where one is known: recipes
    of one structure differ in constants alone, so they take the same time."""
    better = {
        (m.config.placement, m.config.floats, m.float_share): m.ratio
        for m in measurements
        if m.config.recipe != QUICK and m.ratio is not None
    }
    return [
        replace(m, ratio=better.get((m.config.placement, m.config.floats, m.float_share), m.ratio))
        for m in measurements
    ]


def front_with(front: Sequence[Measurement], one: Measurement) -> list[Measurement]:
    """The front, the fastest first, with this point on it unless one of its points is no slower and no less
    accurate.

    A front leaves out a point that gains little over a faster one, and has MAX_POINTS points at most: this
    one takes the place of the next less accurate.
    """
    if any(_no_worse(each, one) for each in front):
        return list(front)
    kept = [each for each in front if not _no_worse(one, each)]
    if len(kept) >= MAX_POINTS:
        less = [each for each in kept if each.rank < one.rank]
        kept.remove(max(less, key=lambda m: m.rank) if less else kept[0])
    return sorted([*kept, one], key=lambda m: m.time)


def _no_worse(one: Measurement, other: Measurement) -> bool:
    """Whether one is as accurate as the other and, up to timing noise, as fast."""
    return one.rank >= other.rank and FASTER * one.time <= other.time


def rejection_reason(candidate: Measurement, winners: Sequence[Measurement], missed: str) -> str:
    """Why a candidate is not shipped. The manifest records this text.

    Args:
        candidate: The one that is not shipped.
        winners: The ones that are.
        missed: How it misses the accuracy goal; "" if it meets it.
    """
    if candidate.fidelity is None:
        return candidate.failure
    if candidate.ratio is not None and candidate.ratio > FASTER:
        return f"{candidate.ratio:.2f}x the time of fp32"
    if missed:
        return missed
    figure = _score_text(candidate)
    for winner in winners:
        if winner.ratio is None and candidate.ratio is None:
            return f"{figure}: {winner.config} is worth more"
        if winner.rank >= candidate.rank and winner.time <= candidate.time:
            return f"{figure}: {winner.config} is better and no slower"
    return f"{figure}: too close to another one to be worth its size"


def _score_text(measurement: Measurement) -> str:
    fidelity, float_share = measurement.fidelity, measurement.float_share
    score = fidelity.score if fidelity is not None else Score("SNR", -math.inf, "dB")
    text = f"SNR {score}" if score.unit else str(score)
    if measurement.estimated is not None:
        return f"{text} at an estimated {measurement.estimated:.2f}x the cycles of fp32"
    if measurement.ratio is None:
        return f"{text}, {100 * float_share:.0f} % of the products in float" if float_share else text
    return f"{text} at {measurement.ratio:.2f}x the time of fp32"


def best_with_baseline(
    winner: Measurement, measurements: list[Measurement], measure: Callable[[CandidateConfig], Measurement]
) -> Measurement:
    """The winner, or the baseline recipe on its structure if that is more accurate on the validation set.

    So no shipped variant is worse than min-max ranges with round-to-nearest.

    Args:
        winner: From a search.
        measurements: All of the search; the baseline is added if the search had no time for it.
        measure: Compiles and measures a candidate.
    """
    baseline = replace(winner.config, recipe=BASELINE)
    other = next((m for m in measurements if m.config == baseline), None)
    if other is None:
        other = measure(baseline)
        measurements.append(other)
    return other if other.rank > winner.rank else winner


def best_untimed(measurements: Sequence[Measurement]) -> Measurement:
    """Of candidates that could not be timed the one with the best ``untimed_score``; where the cycles of some
    are estimated, one of those."""
    estimated = [m for m in measurements if m.estimated is not None and m.fidelity is not None]
    measurements = estimated or measurements
    return max(measurements, key=lambda m: (m.fidelity is not None, m.untimed_score, -m.float_share))
