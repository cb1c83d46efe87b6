"""Choice of the candidates to ship: the Pareto front of time and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgekit.compiler.evaluate.fidelity import Score
from edgekit.compiler.evaluate.relative_time import FASTER
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    MIN_GAIN,
    TIE,
    CandidateConfig,
    Measurement,
)

MAX_POINTS = 3
"""At most this many points of a Pareto front are shipped, the fastest first."""


def pareto_front(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the candidates to ship, the fastest first; each slower one is more accurate by MIN_GAIN.

    All are faster than the parent. Of two that differ by less than timing noise, the more accurate one is
    returned; of recipes beyond saturation, one with optimized weights. If no candidate could be timed, the
    one with the best ``untimed_score`` is returned.
    """
    usable = [m for m in measurements if m.faster]
    if usable and all(m.ratio is None for m in usable):
        return [best_untimed(usable)]
    front: list[Measurement] = []
    # From the most accurate down: each must be faster than all before it.
    for point in sorted(usable, key=lambda m: (-m.rank, m.time)):
        if not front or point.time <= FASTER * front[-1].time:
            front.append(point)
    # From the fastest up: each must be more accurate than the one before it, which is not saturated.
    points: list[Measurement] = []
    for point in reversed(front):
        if not points or (not points[-1].saturated and point.rank >= points[-1].rank + MIN_GAIN[point.unit]):
            points.append(point)
    return [_best_recipe(point, usable) for point in points[:MAX_POINTS]]


def preferred(
    measurements: Sequence[Measurement], is_good_enough: Callable[[Measurement], bool] = lambda _: True
) -> Measurement:
    """Return the fastest measurement, or of untimed ones that with the best ``untimed_score``.

    Times up to TIE of the fastest count as equal. Of these it is one that is good enough, then the one with
    the fewest multiplications in float, then the earliest; and of its recipes the most accurate.
    """
    if all(m.ratio is None for m in measurements):
        return best_untimed(measurements)
    fastest = min(m.time for m in measurements)
    tied = [m for m in measurements if m.time <= TIE * fastest]
    chosen = min(filter(is_good_enough, tied), key=_float_share, default=min(tied, key=_float_share))
    return _best_recipe(chosen, measurements)


def _best_recipe(chosen: Measurement, measurements: Sequence[Measurement]) -> Measurement:
    """Return the most accurate measurement of a structure."""
    same = (m for m in measurements if m.config.structure == chosen.config.structure)
    return max(same, key=lambda m: m.accuracy)


def _float_share(measurement: Measurement) -> float:
    """Return the share that stays float, rounded: recipes differ by a channel or two."""
    return round(measurement.float_share, 2)


def front_with(front: Sequence[Measurement], one: Measurement) -> list[Measurement]:
    """Add a point to the front, the fastest first, unless a point of the front is no slower and no less
    accurate.

    A front leaves out a point that gains little over a faster one, and has MAX_POINTS points at most: this
    one takes the place of the next less accurate.
    """
    if any(_no_worse(point, one) for point in front):
        return list(front)
    remaining = [point for point in front if not _no_worse(one, point)]
    if len(remaining) >= MAX_POINTS:
        less = [point for point in remaining if point.rank < one.rank]
        remaining.remove(max(less, key=lambda m: m.rank) if less else remaining[0])
    return sorted([*remaining, one], key=lambda m: m.time)


def _no_worse(one: Measurement, other: Measurement) -> bool:
    """Return whether one is as accurate as the other and, up to timing noise, as fast."""
    return one.rank >= other.rank and FASTER * one.time <= other.time


def rejection_reason(candidate: Measurement, winners: Sequence[Measurement], missed: str) -> str:
    """Return the reason that a candidate is not shipped. The manifest records this text.

    Args:
        missed: Description of the missed accuracy goal; "" if the candidate meets it.
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
            return f"{figure}: {winner.config} is the better trade-off"
        if winner.rank >= candidate.rank and winner.time <= candidate.time:
            return f"{figure}: {winner.config} is better and as fast"
    return f"{figure}: too similar to another variant to be worth its size"


def _score_text(measurement: Measurement) -> str:
    fidelity, float_share = measurement.fidelity, measurement.float_share
    score = fidelity.score if fidelity is not None else Score("SNR", -math.inf, "dB")
    text = f"SNR {score}" if score.unit else str(score)
    if measurement.ratio is None:
        return f"{text}, {100 * float_share:.0f} % of the products in float" if float_share else text
    return f"{text} at {measurement.ratio:.2f}x the time of fp32"


def best_so_far(
    measurements: Sequence[Measurement],
    parent_ms: float | None,
    is_good_enough: Callable[[Measurement], bool],
) -> str:
    """Describe the fastest candidate that is accurate enough, or else the most accurate; "" if none ran.

    Args:
        parent_ms: Latency of the float parent in ms, or None if candidates are not timed.
    """
    ran = [m for m in measurements if m.fidelity is not None]
    usable = [m for m in ran if is_good_enough(m)]
    best = min(usable, key=lambda m: (m.time, -m.rank), default=max(ran, key=lambda m: m.rank, default=None))
    if best is None or best.fidelity is None:
        return ""
    score = best.fidelity.score
    accuracy = f"SNR {score}" if score.unit else str(score)
    latency = f"{best.ratio * parent_ms:.3g} ms, " if best.ratio is not None and parent_ms else ""
    return f"{'best' if usable else 'most accurate'} {latency}{accuracy}"


def best_with_baseline(
    winner: Measurement, measurements: list[Measurement], measure: Callable[[CandidateConfig], Measurement]
) -> Measurement:
    """Return the winner, or the baseline recipe on its structure if that is more accurate in validation.

    So no shipped variant is worse than min-max ranges with round-to-nearest. Beyond saturation it cannot be
    better than optimized weights (``Measurement.is_best_recipe``), and is not measured.

    Args:
        measurements: All measurements of the search; the baseline is added if the search had no time for it.
    """
    if winner.is_best_recipe:
        return winner
    baseline = replace(winner.config, recipe=BASELINE)
    other = next((m for m in measurements if m.config == baseline), None)
    if other is None:
        other = measure(baseline)
        measurements.append(other)
    return other if other.accuracy > winner.accuracy else winner


def best_untimed(measurements: Sequence[Measurement]) -> Measurement:
    """Return the candidate with the best ``untimed_score``, for candidates that could not be timed."""
    return max(measurements, key=lambda m: (m.fidelity is not None, m.untimed_score, -m.float_share))
