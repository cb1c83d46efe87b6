"""The int8 search for a target that cannot be timed here.

One candidate is chosen by ``untimed_score``, which penalizes estimated cycles, or float layers where cycles
are not estimated:

    1. the target's first placement with the default recipe, and the baseline; stop if the accuracy is
       saturated and cycles are not estimated
    2. every placement with the quick recipe; the best of them with the other recipes
    3. float regions of that placement, and of the one with the fewest float layers, with its best recipe
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from edgekit.compiler.quantize.search.fronts import best_untimed
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    COMPENSATED,
    DEFAULT,
    FLOAT_PENALTY,
    L2_RANGES,
    NO_BIAS_CORRECTION,
    QUICK,
    TIME_PENALTY,
    CandidateConfig,
    Measurement,
    saturation,
)
from edgekit.compiler.quantize.search.strategy import FindFloatRegions, best_of, recipe_changes


def search_untimed(
    placements: Sequence[str],
    measure: Callable[[CandidateConfig], Measurement],
    find_float_regions: FindFloatRegions,
    float_share: Callable[[CandidateConfig], float],
    has_time: Callable[[CandidateConfig], bool],
) -> list[Measurement]:
    """Search for a target that cannot be timed, with the arguments and result of ``search_front``.

    Args:
        float_share: Returns the share of MACs that a candidate leaves in float, known before it is compiled.
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
    if any(measurement.saturated and measurement.estimated is None for measurement in measurements):
        return
    for placement in placements:
        yield CandidateConfig(placement, QUICK)
    base = best_untimed(measurements).config
    yield from (
        replace(base, recipe=recipe) for recipe in (DEFAULT, BASELINE, COMPENSATED, NO_BIAS_CORRECTION)
    )
    yield from recipe_changes(base, measurements)
    best = best_of(measurements, base)
    if best.untimed_score >= saturation(best.unit) - _least_penalty(measurements, best.unit, 0.0):
        return
    fewest_float = min(
        (m for m in measurements if m.fidelity is not None), key=lambda m: m.float_share, default=best
    ).config
    for placement in dict.fromkeys((base.placement, fewest_float.placement)):
        for floats in find_float_regions(CandidateConfig(placement), 0.0):
            grown = CandidateConfig(placement, best.config.recipe, floats)
            # Even at saturated accuracy, the penalty for its float layers may be too high.
            penalty = _least_penalty(measurements, best.unit, float_share(grown))
            if saturation(best.unit) - penalty > best_untimed(measurements).untimed_score:
                yield grown
    grown = best_untimed(measurements).config
    yield from (
        replace(grown, recipe=recipe) for recipe in (BASELINE, DEFAULT, L2_RANGES, NO_BIAS_CORRECTION)
    )


def _least_penalty(measurements: Sequence[Measurement], unit: str, float_share: float) -> float:
    """Return the least penalty of a candidate with this share of float MACs: if cycles are estimated, that of
    the fastest candidate so far."""
    estimates = [measurement.estimated for measurement in measurements if measurement.estimated is not None]
    return TIME_PENALTY[unit] * min(estimates) if estimates else FLOAT_PENALTY[unit] * float_share
