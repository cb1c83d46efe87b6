"""The recipes that a search tries on one structure: a placement and its float regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.measurement import DEFAULT, CandidateConfig, Measurement

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
"""(config, min_noise_share) -> sets of nodes to keep float, the most promising first. Each removes at least
that share (0 to 1) of the quantization noise."""


def recipe_changes(
    structure: CandidateConfig, measurements: Sequence[Measurement]
) -> Iterator[CandidateConfig]:
    """Yield the best recipe of a structure so far, with one change at a time."""
    for change in RECIPE_CHANGES:
        best = best_of(measurements, structure)
        if best.saturated:
            break
        yield replace(structure, recipe=replace(with_optimized_weights(best.config.recipe), **change))


def with_optimized_weights(recipe: Recipe) -> Recipe:
    """Return the recipe, or the default if the recipe rounds weights to nearest."""
    return recipe if recipe.rounding == DEFAULT.rounding else DEFAULT


def best_of(measurements: Sequence[Measurement], like: CandidateConfig) -> Measurement:
    """Return the most accurate measurement so far of a placement and its float nodes."""
    same = [m for m in measurements if (m.config.placement, m.config.floats) == (like.placement, like.floats)]
    return max(same, key=lambda m: m.rank)
