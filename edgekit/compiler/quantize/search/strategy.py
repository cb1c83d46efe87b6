"""The int8 search of a target whose candidates are timed here: what to measure next, and when to stop.

Only decisions are made here; the caller passes the function that measures a candidate on the validation set
(``Split.validation``). The number of candidates ends a search, so that every machine measures the same ones;
a time limit ends it only if the user set one. ``search_fastest`` (``--precision int8``) looks for the fastest
candidate that is accurate enough:

    1. every placement, rounded to nearest (the quick recipe), until they get slower; the unlikely ones wait
    2. from the fastest on, those that are faster than the float parent: better recipes, if they may be
       enough; of placements that differ by less than timing noise, one that is good enough comes first, then
       the one with the fewest multiplications in float
    3. if the first one is not accurate enough, it gets float regions, which join the others
    4. if nothing was accurate enough: the other recipes, on the most accurate first

``search_front`` (``auto``) looks for a Pareto front:

    1. every placement with the quick recipe
    2. the placements on the front with the default recipe, the baseline, then one change of the default at a
       time: a better recipe costs no latency
    3. if accuracy can still improve: the parts with the most noise stay in float (``sensitivity``)

A placement that is not faster than the float parent is dropped: no recipe makes it faster.
``search_untimed`` is for targets that are not timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgekit.compiler.evaluate.relative_time import CLEARLY_FASTER, FASTER
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.fronts import best_untimed, pareto_front, preferred
from edgekit.compiler.quantize.search.measurement import (
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

Measure = Callable[[CandidateConfig], Measurement]
FindFloatRegions = Callable[[CandidateConfig, float], Sequence[frozenset[str]]]
"""(config, min_noise_share) -> sets of nodes to keep float, from the fewest to the most. Each removes at
least that share (0 to 1) of the quantization noise."""


def recipe_changes(
    structure: CandidateConfig, measurements: Sequence[Measurement]
) -> Iterator[CandidateConfig]:
    """Yield the best recipe of a structure so far, with one change at a time."""
    for change in RECIPE_CHANGES:
        best = best_of(measurements, structure)
        if best.saturated:
            break
        yield replace(structure, recipe=replace(with_optimized_weights(best.config.recipe), **change))


def better_recipe(quick: Measurement) -> Recipe:
    """Return the recipe to measure after the quick one."""
    return DEFAULT if quick.unit else L2_RANGES


def with_optimized_weights(recipe: Recipe) -> Recipe:
    """Return the recipe, or the default if the recipe rounds weights to nearest."""
    return recipe if recipe.rounding == DEFAULT.rounding else DEFAULT


def best_of(measurements: Sequence[Measurement], structure: CandidateConfig) -> Measurement:
    """Return the most accurate measurement so far of a placement and its float nodes."""
    return max(
        (m for m in measurements if m.config.structure == structure.structure), key=lambda m: m.accuracy
    )


MAX_STRUCTURES = 3
"""At most this many structures (placement and float regions) are measured with better recipes."""
MAX_CANDIDATES = {"int8": 24, "auto": 48}
"""Largest number of candidates of one target, by precision."""

SLOWER, SLOWER_IN_A_ROW = 1.15, 2
"""Placements are listed from many int8 kernels to few. Once one is clearly faster than the parent, and
SLOWER_IN_A_ROW take SLOWER times as long, the rest waits until those are known not to be accurate enough."""

FloatsOf = Callable[[str], frozenset[str]]
"""Placement -> the nodes that stay float in it."""

HasTime = Callable[[CandidateConfig], bool]
"""(config) -> whether the user's time limit allows a candidate."""
Judge = Callable[[Measurement], bool]


def search_fastest(
    placements: Sequence[str],
    floats_of: FloatsOf,
    measure: Measure,
    find_float_regions: FindFloatRegions,
    is_good_enough: Judge,
    may_be_enough: Judge,
    has_time: HasTime,
    unlikely: Collection[str] = (),
) -> list[Measurement]:
    """Measure candidates until one is good enough, there are no more, or there were enough of them.

    Args:
        placements: The target's, the most likely winner first.
        is_good_enough: Whether the search may end with this candidate. Then a better and the baseline recipe
            of its structure are measured too.
        may_be_enough: Whether a better recipe may make a candidate good enough that is rounded to nearest.
        has_time: Whether there is time for a candidate. The first candidate, and the baseline recipe of one
            that is good enough (which is quick), are measured in any case.
        unlikely: Placements that are measured only if no other one is good enough.

    Returns all measurements, in order.
    """
    return _FastestSearch(
        floats_of, measure, find_float_regions, is_good_enough, may_be_enough, has_time
    ).run([name for name in placements if name not in unlikely], [p for p in placements if p in unlikely])


def _least_ratio(
    placement: str, floats_of: FloatsOf, measurements: Sequence[Measurement], is_good_enough: Judge
) -> float | None:
    """Return the ratio of a placement that is good enough, if this one has more in float and is not worth
    measuring: the good one is itself no faster than one with less in float, so float costs time here."""
    floats = floats_of(placement)
    for good in measurements:
        floats_of_good = floats_of(good.config.placement)
        times = [m.time for m in measurements if floats_of(m.config.placement) < floats_of_good]
        costs_time = min(times, default=math.inf) <= good.time
        if floats_of_good < floats and costs_time and is_good_enough(good):
            return good.ratio
    return None


class _FastestSearch:
    def __init__(
        self,
        floats_of: FloatsOf,
        measure: Measure,
        find_float_regions: FindFloatRegions,
        is_good_enough: Judge,
        may_be_enough: Judge,
        has_time: HasTime,
    ) -> None:
        self._floats_of, self._measure, self._find_float_regions = floats_of, measure, find_float_regions
        self._is_good_enough, self._may_be_enough = is_good_enough, may_be_enough
        self._has_time = has_time
        self._measurements: list[Measurement] = []

    def run(self, placements: Sequence[str], unlikely: Sequence[str]) -> list[Measurement]:
        deferred = [*self._screen(placements), *unlikely]
        waiting = [measurement for measurement in self._measurements if measurement.faster]
        near: list[CandidateConfig] = []
        has_regions = False
        while waiting or deferred:
            if not waiting:  # these were not screened before
                quick = self._attempt(CandidateConfig(deferred.pop(0), QUICK))
                waiting += [quick] if quick is not None and quick.faster else []
                continue
            structure = preferred(waiting, self._is_good_enough)
            waiting.remove(structure)
            if self._refine(structure):
                return self._measurements
            near += [structure.config] if self._may_be_enough(structure) else []
            if not has_regions:
                waiting += self._with_float_regions(structure.config)
                has_regions = True
        for config in sorted(near, key=lambda config: -best_of(self._measurements, config).rank):
            if self._accept(config, (DEFAULT, BASELINE, NO_BIAS_CORRECTION, COMPENSATED)):
                break
        return self._measurements

    def _screen(self, placements: Sequence[str]) -> list[str]:
        """Measure placements with the quick recipe.

        Returns those that were left out: for want of time, after SLOWER_IN_A_ROW that are slower than one
        that is clearly faster than the parent, or because one with less in float is good enough.
        """
        slower, left_out = 0, list[str]()
        for number, placement in enumerate(placements):
            if (ratio := self._ratio_left_out(placement)) is not None:
                left_out.append(placement)
            else:
                attempt = self._attempt(CandidateConfig(placement, QUICK))
                if attempt is None:
                    return [*left_out, *placements[number:]]
                ratio = attempt.ratio
            if ratio is None:
                continue
            fastest = min((measurement.ratio or 1.0 for measurement in self._measurements), default=1.0)
            slower = slower + 1 if ratio > SLOWER * fastest else 0
            if slower == SLOWER_IN_A_ROW and fastest <= CLEARLY_FASTER:
                return [*left_out, *placements[number + 1 :]]
        return left_out

    def _ratio_left_out(self, placement: str) -> float | None:
        return _least_ratio(placement, self._floats_of, self._measurements, self._is_good_enough)

    def _refine(self, quick: Measurement) -> bool:
        """Return whether a structure is good enough, with a better recipe if that may help.

        If it is, the better recipe is measured in any case: it costs no latency.
        """
        better = better_recipe(quick)
        if self._is_good_enough(quick):
            self._attempt(replace(quick.config, recipe=better))
            return self._accept(quick.config, (QUICK,))
        recipes = (better, BASELINE) if quick.unit else (better,)
        return self._may_be_enough(quick) and self._accept(quick.config, recipes)

    def _accept(self, structure: CandidateConfig, recipes: Sequence[Recipe]) -> bool:
        """Measure recipes of a structure until one is good enough, and then those that must not be better."""
        for recipe in recipes:
            measurement = self._attempt(replace(structure, recipe=recipe))
            if measurement is not None and self._is_good_enough(measurement):
                if not best_of(self._measurements, structure).is_best_recipe:
                    self._attempt(replace(structure, recipe=BASELINE), must=True)
                if best_of(self._measurements, structure).config.recipe == BASELINE:
                    self._attempt(replace(structure, recipe=NO_BIAS_CORRECTION))
                return True
        return False

    def _with_float_regions(self, structure: CandidateConfig) -> list[Measurement]:
        """Measure the structure with float regions; return those that are faster than what is good enough.

        A region with less in float is faster and less accurate. So the search begins with the most in float,
        and ends with the first that is not good enough, or that no recipe makes good enough if nothing is.
        """
        best = best_of(self._measurements, structure)
        limit = FASTER * min((m.time for m in self._measurements if self._is_good_enough(m)), default=1.0)
        is_worthwhile = self._is_good_enough if limit < FASTER else self._may_be_enough
        results: list[Measurement] = []
        for floats in reversed(self._find_float_regions(best.config, min_noise_share(best))):
            result = self._attempt(CandidateConfig(structure.placement, QUICK, floats))
            if result is None or result.fidelity is None:
                continue
            results += [result] if result.time <= limit else []
            if result.faster and not is_worthwhile(result):
                break
        return results

    def _attempt(self, config: CandidateConfig, must: bool = False) -> Measurement | None:
        for measurement in self._measurements:
            if measurement.config == config:
                return measurement
        may_go_on = len(self._measurements) < MAX_CANDIDATES["int8"] and self._has_time(config)
        if self._measurements and not must and not may_go_on:
            return None
        self._measurements.append(self._measure(config))
        return self._measurements[-1]


def search_front(
    placements: Sequence[str],
    floats_of: FloatsOf,
    measure: Measure,
    find_float_regions: FindFloatRegions,
    may_be_enough: Judge,
    has_time: HasTime,
) -> list[Measurement]:
    """Measure candidates for a Pareto front until there are no more, or there were enough of them.

    Weights are optimized only for placements that are known to be fast, and that may be accurate enough.
    Arguments and result as for :func:`search_fastest`.
    """
    measurements: list[Measurement] = []
    configs = _next_configs(placements, floats_of, find_float_regions, may_be_enough, measurements)
    return _measure_all(configs, measurements, measure, has_time)


def _measure_all(
    configs: Iterator[CandidateConfig], measurements: list[Measurement], measure: Measure, has_time: HasTime
) -> list[Measurement]:
    """Measure up to MAX_CANDIDATES that there is time for, the first one in any case."""
    for config in configs:
        if len(measurements) == MAX_CANDIDATES["auto"]:
            break
        is_new = all(measurement.config != config for measurement in measurements)
        if is_new and (not measurements or has_time(config)):
            measurements.append(measure(config))
    return measurements


def _next_configs(
    placements: Sequence[str],
    floats_of: FloatsOf,
    find_float_regions: FindFloatRegions,
    may_be_enough: Judge,
    measurements: Sequence[Measurement],
) -> Iterator[CandidateConfig]:
    """Yield the candidates to measure, in order; ``measurements`` grows and is read at each step."""
    for placement in placements:
        if _least_ratio(placement, floats_of, measurements, lambda m: m.saturated and m.faster) is None:
            yield CandidateConfig(placement, QUICK)
    structures = pareto_front([m for m in measurements if m.config.recipe == QUICK])[-MAX_STRUCTURES:]
    structures = list(filter(may_be_enough, structures)) or structures
    recipe = DEFAULT
    for structure in reversed(structures):
        yield replace(structure.config, recipe=recipe)
        if not best_of(measurements, structure.config).is_best_recipe:
            yield replace(structure.config, recipe=BASELINE)
        yield from recipe_changes(structure.config, measurements)
        # The next structure starts with the best recipe of this one.
        recipe = with_optimized_weights(best_of(measurements, structure.config).config.recipe)
    for best in [m for m in pareto_front(measurements) if not m.saturated]:
        for floats in find_float_regions(best.config, min_noise_share(best)):
            region = replace(best.config, floats=floats)
            yield region
            limit = FASTER * min((m.time for m in measurements if m.saturated), default=1.0)
            if any(m.config == region and m.time > limit for m in measurements):
                break  # the next ones have more in float
    for point in [m for m in pareto_front(measurements) if m.config.floats]:
        if not point.is_best_recipe:
            yield replace(point.config, recipe=BASELINE)
        yield replace(point.config, recipe=DEFAULT)


def min_noise_share(measurement: Measurement) -> float:
    """Return the share of the noise that a float region must remove to gain MIN_GAIN."""
    gain = MIN_GAIN[measurement.unit]
    return 1 - 10 ** (-gain / 10) if measurement.unit else gain / max(1 - measurement.rank, gain)


# The int8 search for a target that cannot be timed here.
#
# One candidate is chosen by ``untimed_score``, which penalizes float layers:
#
#     1. the target's first placement with the default recipe, and the baseline; stop if the accuracy is
#        saturated
#     2. every placement with the quick recipe; the best of them with the other recipes
#     3. float regions of that placement, and of the one with the fewest float layers, with its best recipe


def search_untimed(
    placements: Sequence[str],
    measure: Measure,
    find_float_regions: FindFloatRegions,
    float_share: Callable[[CandidateConfig], float],
    has_time: HasTime,
) -> list[Measurement]:
    """Search for a target that cannot be timed, with the arguments and result of ``search_front``.

    Args:
        float_share: Returns the share of MACs that a candidate leaves in float, known before it is compiled.
    """
    measurements: list[Measurement] = []
    configs = _next_untimed_configs(placements, find_float_regions, float_share, measurements)
    return _measure_all(configs, measurements, measure, has_time)


def _next_untimed_configs(
    placements: Sequence[str],
    find_float_regions: FindFloatRegions,
    float_share: Callable[[CandidateConfig], float],
    measurements: Sequence[Measurement],
) -> Iterator[CandidateConfig]:
    yield CandidateConfig(placements[0])
    yield CandidateConfig(placements[0], BASELINE)
    if any(measurement.saturated for measurement in measurements):
        return
    for placement in placements:
        yield CandidateConfig(placement, QUICK)
    base = best_untimed(measurements).config
    yield from (
        replace(base, recipe=recipe) for recipe in (DEFAULT, BASELINE, COMPENSATED, NO_BIAS_CORRECTION)
    )
    yield from recipe_changes(base, measurements)
    best = best_of(measurements, base)
    if best.untimed_score >= saturation(best.unit):
        return
    fewest_float = min(
        (m for m in measurements if m.fidelity is not None), key=lambda m: m.float_share, default=best
    ).config
    for placement in dict.fromkeys((base.placement, fewest_float.placement)):
        for floats in find_float_regions(CandidateConfig(placement), 0.0):
            grown = CandidateConfig(placement, best.config.recipe, floats)
            # Even at saturated accuracy, the penalty for its float layers may be too high.
            penalty = FLOAT_PENALTY[best.unit] * float_share(grown)
            if saturation(best.unit) - penalty > best_untimed(measurements).untimed_score:
                yield grown
    grown = best_untimed(measurements).config
    yield from (
        replace(grown, recipe=recipe) for recipe in (BASELINE, DEFAULT, L2_RANGES, NO_BIAS_CORRECTION)
    )
