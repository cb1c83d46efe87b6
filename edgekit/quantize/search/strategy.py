"""The int8 search of a target: which candidate to measure next, when to stop, which ones to ship.

Only decisions are made here; the caller passes the function that measures a candidate on the validation set
(``Split.validation``). The steps, each based on the measurements so far:

    1. with ``--precision int8``: the target's first placement with the default recipe and with the baseline
       (min-max ranges, round-to-nearest). Most searches end here.
    2. every placement with a quick recipe, which shows how fast it is, and roughly how accurate
    3. the placements on the Pareto front with the default recipe, the baseline, then one change of the
       default at a time: a better recipe costs no latency
    4. if accuracy can still improve: the most sensitive blocks stay in float, as regions that start at the
       input or end at the output, or as the worst few blocks alone (``sensitivity``)

A placement that is not faster than the float parent is dropped: no recipe makes it faster.

If candidates cannot be timed, one is chosen by ``untimed_score``, which penalizes float layers:

    1. as above; stop if the accuracy is saturated
    2. every placement with the quick recipe; the best of them with the other recipes
    3. float regions of that placement, and of the one with the fewest float layers, with its best recipe
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgekit.evaluate.fidelity import Score
from edgekit.evaluate.relative_time import FASTER
from edgekit.quantize.recipe import Recipe
from edgekit.quantize.search.measurement import (
    BASELINE,
    COMPENSATED,
    DEFAULT,
    FLOAT_PENALTY,
    L2_RANGES,
    MIN_GAIN,
    NO_BIAS_CORRECTION,
    QUICK,
    CandidateConfig,
    Measurement,
    saturation,
)

RECIPE_CHANGES: tuple[Mapping[str, Any], ...] = (
    {"ranges": "l2"},
    {"bias_correction": False},
    {"ranges": "minmax"},
    {"compensation": 1.0},
)
"""Changes to the default recipe, applied one at a time. Which one helps depends on the network: bias
correction gained EfficientNet-Lite0 2.8 dB and YOLOX-nano nothing; a ridge below 1 overfits (by 5 dB)."""
MAX_STRUCTURES = 3
"""At most this many structures (placement and float regions) are measured with better recipes."""
MAX_POINTS = 3
"""At most this many points of a Pareto front are shipped, the fastest first."""

Measure = Callable[[CandidateConfig], Measurement]
FindFloatRegions = Callable[[CandidateConfig, float], Sequence[frozenset[str]]]
"""(config, min_noise_share) -> sets of nodes to keep float, the most promising first. Each removes at least
that share (0 to 1) of the quantization noise."""


def search(
    placements: Sequence[str],
    measure: Measure,
    find_float_regions: FindFloatRegions,
    is_good_enough: Callable[[Measurement], bool] | None,
    has_time: Callable[[CandidateConfig], bool],
) -> list[Measurement]:
    """Measure candidates until one is good enough, there are no more, or time is up.

    Args:
        placements: The target's, the most likely winner first.
        measure: Compiles and measures a candidate.
        find_float_regions: Finds nodes to keep in float.
        is_good_enough: Whether the search may end with this candidate. If the candidate is faster, but within
            timing noise, the other placements are measured first with the quick recipe, and the best one that
            is good enough takes its place. Then its other recipes are measured: default, baseline, MSE ranges
            (not for classifiers), and no bias correction if the baseline is better than these. None: find a
            Pareto front; weights are optimized only for placements that are known to be fast.
        has_time: Whether there is time for a candidate. The first candidate, and the baseline recipe of one
            that is good enough (which is quick), are measured in any case.

    Returns:
        All measurements, in order.
    """
    measurements: list[Measurement] = []
    for config in _next_configs(placements, find_float_regions, measurements, is_good_enough is not None):
        if any(m.config == config for m in measurements) or (measurements and not has_time(config)):
            continue  # a cheaper one may still fit
        measurements.append(measure(config))
        if is_good_enough is not None and is_good_enough(measurements[-1]):
            if not measurements[-1].clearly_faster:
                for other in (CandidateConfig(placement, QUICK) for placement in placements):
                    if all(m.config.placement != other.placement for m in measurements) and has_time(other):
                        measurements.append(measure(other))
            structure = select_one(pareto_front([m for m in measurements if is_good_enough(m)])).config
            for recipe in (DEFAULT, BASELINE, L2_RANGES, NO_BIAS_CORRECTION):
                other, best = replace(structure, recipe=recipe), _best(measurements, structure)
                if (recipe == NO_BIAS_CORRECTION and best.config.recipe != BASELINE) or (
                    recipe == L2_RANGES and (best.is_classification or best.saturated)
                ):
                    continue
                if not any(m.config == other for m in measurements) and (
                    recipe == BASELINE or has_time(other)
                ):
                    measurements.append(measure(other))
            break
    return measurements


def select_one(points: Sequence[Measurement]) -> Measurement:
    """The one point of a Pareto front to ship: the most accurate of those that are clearly faster than the
    float parent, or of all if none is."""
    return max(points, key=lambda m: (m.clearly_faster, m.rank))


def search_untimed(
    placements: Sequence[str],
    measure: Callable[[CandidateConfig], Measurement],
    find_float_regions: FindFloatRegions,
    float_share: Callable[[CandidateConfig], float],
    has_time: Callable[[CandidateConfig], bool],
) -> list[Measurement]:
    """Search for a target that cannot be timed. Arguments and result as for :func:`search`, and one more.

    Args:
        float_share: The share of MACs that a candidate leaves in float, known before it is compiled.
    """
    measurements: list[Measurement] = []
    for config in _next_untimed_configs(placements, find_float_regions, float_share, measurements):
        if any(m.config == config for m in measurements):
            continue
        if measurements and not has_time(config):
            continue
        measurements.append(measure(config))
    return measurements


def _next_untimed_configs(
    placements: Sequence[str],
    find_float_regions: FindFloatRegions,
    float_share: Callable[[CandidateConfig], float],
    measurements: Sequence[Measurement],
) -> Iterator[CandidateConfig]:
    yield CandidateConfig(placements[0])
    yield CandidateConfig(placements[0], BASELINE)
    if any(each.saturated for each in measurements):
        return
    for placement in placements:
        yield CandidateConfig(placement, QUICK)
    base = _best_untimed(measurements).config
    yield from (
        replace(base, recipe=recipe) for recipe in (DEFAULT, BASELINE, COMPENSATED, NO_BIAS_CORRECTION)
    )
    yield from _recipe_changes(base, measurements)
    best = _best(measurements, base)
    if best.untimed_score >= saturation(best.unit):
        return
    fewest_float = min(
        (m for m in measurements if m.fidelity is not None), key=lambda m: m.float_share, default=best
    ).config
    for placement in dict.fromkeys((base.placement, fewest_float.placement)):
        for floats in find_float_regions(CandidateConfig(placement), 0.0):
            grown = CandidateConfig(placement, best.config.recipe, floats)
            # Even at saturated accuracy, the penalty for its float layers may be too high.
            if (
                saturation(best.unit) - FLOAT_PENALTY[best.unit] * float_share(grown)
                > _best_untimed(measurements).untimed_score
            ):
                yield grown
    grown = _best_untimed(measurements).config
    yield from (
        replace(grown, recipe=recipe) for recipe in (BASELINE, DEFAULT, L2_RANGES, NO_BIAS_CORRECTION)
    )


def _best_untimed(measurements: Sequence[Measurement]) -> Measurement:
    return max(measurements, key=lambda m: (m.fidelity is not None, m.untimed_score, -m.float_share))


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


def _next_configs(
    placements: Sequence[str],
    find_float_regions: FindFloatRegions,
    measurements: Sequence[Measurement],
    may_end: bool,
) -> Iterator[CandidateConfig]:
    """The candidates to measure, in order. ``measurements`` grows meanwhile and is read at each step."""
    if may_end:
        yield CandidateConfig(placements[0])
    # A recipe changes accuracy only, so a slow placement is slow with every recipe.
    slow = bool(measurements) and measurements[0].fidelity is not None and not measurements[0].faster
    if may_end and not slow:
        yield CandidateConfig(placements[0], BASELINE)
    for placement in placements[slow:]:
        yield CandidateConfig(placement, QUICK)
    structures = pareto_front([m for m in measurements if m.config.recipe == QUICK])[-MAX_STRUCTURES:]
    recipe = DEFAULT
    for structure in reversed(structures):
        yield replace(structure.config, recipe=recipe)
        yield replace(structure.config, recipe=BASELINE)
        yield from _recipe_changes(structure.config, measurements)
        # The next structure starts with the best recipe of this one.
        recipe = _with_optimized_weights(_best(measurements, structure.config).config.recipe)
    for best in [m for m in pareto_front(measurements) if not m.saturated]:
        for floats in find_float_regions(best.config, _min_noise_share(best)):
            grown = replace(best.config, floats=floats)
            yield grown
            if not any(m.config == grown for m in measurements):  # no time was left; for this one may be
                yield replace(grown, recipe=QUICK)
    for point in [m for m in pareto_front(measurements) if m.config.floats]:
        yield from (replace(point.config, recipe=recipe) for recipe in (BASELINE, DEFAULT))


def _min_noise_share(found: Measurement) -> float:
    """The share of the noise that a float region must remove to gain MIN_GAIN."""
    gain = MIN_GAIN[found.unit]
    return 1 - 10 ** (-gain / 10) if found.unit else gain / max(1 - found.rank, gain)


def _recipe_changes(
    structure: CandidateConfig, measurements: Sequence[Measurement]
) -> Iterator[CandidateConfig]:
    """The best recipe of a structure so far, with one change at a time."""
    for change in RECIPE_CHANGES:
        best = _best(measurements, structure)
        if best.saturated:
            break
        yield replace(structure, recipe=replace(_with_optimized_weights(best.config.recipe), **change))


def _with_optimized_weights(recipe: Recipe) -> Recipe:
    """The recipe, or the default if the recipe rounds weights to nearest."""
    return recipe if recipe.rounding == DEFAULT.rounding else DEFAULT


def _best(measurements: Sequence[Measurement], like: CandidateConfig) -> Measurement:
    """The most accurate measurement so far of a placement and its float nodes."""
    own = [m for m in measurements if (m.config.placement, m.config.floats) == (like.placement, like.floats)]
    return max(own, key=lambda m: m.rank)


def pareto_front(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The candidates worth shipping, the fastest first; each slower one is more accurate by MIN_GAIN.

    Only candidates that are faster than the parent; of two that differ by less than timing noise, the more
    accurate one. If none could be timed: the one with the best ``untimed_score``.
    """
    usable = [m for m in measurements if m.faster]
    if usable and all(m.ratio is None for m in usable):
        return [_best_untimed(usable)]
    kept: list[Measurement] = []
    # From the most accurate down: each must be faster than all before it.
    for each in sorted(usable, key=lambda m: (-m.rank, m.ratio or 0)):
        if not kept or (each.ratio or 1) <= FASTER * (kept[-1].ratio or 1):
            kept.append(each)
    # From the fastest up: each must be more accurate than the one before it, which is not saturated.
    points: list[Measurement] = []
    for each in reversed(kept):
        if not points or (not points[-1].saturated and each.rank >= points[-1].rank + MIN_GAIN[each.unit]):
            points.append(each)
    return points[:MAX_POINTS]


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
    return sorted([*kept, one], key=lambda m: m.ratio or 0)


def _no_worse(one: Measurement, other: Measurement) -> bool:
    """Whether one is as accurate as the other and, up to timing noise, as fast."""
    return one.rank >= other.rank and FASTER * (one.ratio or 1) <= (other.ratio or 1)


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
        if winner.rank >= candidate.rank and (winner.ratio or 1) <= (candidate.ratio or 1):
            return f"{figure}: {winner.config} is better and no slower"
    return f"{figure}: too close to another one to be worth its size"


def _score_text(measurement: Measurement) -> str:
    fidelity, float_share = measurement.fidelity, measurement.float_share
    score = fidelity.score if fidelity is not None else Score("SNR", -math.inf, "dB")
    text = f"SNR {score}" if score.unit else str(score)
    if measurement.ratio is None:
        return f"{text}, {100 * float_share:.0f} % of the products in float" if float_share else text
    return f"{text} at {measurement.ratio:.2f}x the time of fp32"
