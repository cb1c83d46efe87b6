from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.quantize.search.fronts import pareto_front
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    COMPENSATED,
    DEFAULT,
    NO_BIAS_CORRECTION,
    CandidateConfig,
    Measurement,
)
from edgekit.compiler.quantize.search.strategy import search_untimed


def tried(config: CandidateConfig, self_map: float, ratio: float | None) -> Measurement:
    return Measurement(config, Fidelity(Score("self-mAP", self_map), 12.0), ratio)


def always(config: CandidateConfig) -> bool:
    return True


def untimed(
    value: Callable[[CandidateConfig], tuple[float, float]],
    placements: Sequence[str] = ("all", "some"),
    find_float_regions: Sequence[frozenset[str]] = (),
    has_time: Callable[[CandidateConfig], bool] = always,
) -> list[Measurement]:
    """``value``: choice -> (self-mAP, part of the products in float)."""

    def measure(config: CandidateConfig) -> Measurement:
        self_map, share = value(config)
        return replace(tried(config, self_map, None), float_share=share)

    return search_untimed(
        placements,
        measure,
        lambda config, least: find_float_regions,
        lambda config: value(config)[1],
        has_time,
    )


@pytest.mark.parametrize(
    ("better", "share", "won"), [(0.03, 0.06, "some"), (0.03, 0.12, "all"), (0.2, 0.5, "some")]
)
def test_where_nothing_is_timed_floats_have_a_price(better: float, share: float, won: str) -> None:
    found = untimed(lambda c: (0.8 + better, share) if c.placement == "some" else (0.8, 0.0))
    assert pareto_front(found)[0].config.placement == won
    assert {t.config.placement for t in found} == {"all", "some"}


def test_beyond_what_is_enough_nothing_is_paid() -> None:
    found = untimed(lambda c: (0.999, 0.01) if c.placement == "some" else (0.986, 0.0))
    assert [t.config for t in found] == [CandidateConfig("all"), CandidateConfig("all", BASELINE)]


def test_islands_are_tried_on_the_best_recipe_where_nothing_is_timed() -> None:
    nodes = frozenset({"a"})

    def value(config: CandidateConfig) -> tuple[float, float]:
        best = config.recipe == NO_BIAS_CORRECTION
        return 0.7 + 0.1 * best + 0.1 * bool(config.floats), 0.01 * bool(config.floats)

    found = untimed(value, find_float_regions=[nodes])
    assert pareto_front(found) == [
        t for t in found if t.config == CandidateConfig("all", NO_BIAS_CORRECTION, nodes)
    ]
    assert CandidateConfig("all", BASELINE, nodes) in [t.config for t in found]


def test_changes_that_help_only_together_are_tried_where_nothing_is_timed() -> None:
    found = untimed(lambda c: (0.9 if c.recipe == COMPENSATED else 0.7 + 0.1 * (c.recipe == DEFAULT), 0.0))
    assert pareto_front(found)[0].config == CandidateConfig("all", COMPENSATED)


def test_islands_are_tried_where_least_is_float_too() -> None:
    nodes = frozenset({"a"})

    def value(config: CandidateConfig) -> tuple[float, float]:
        if config.placement == "some":
            return 0.98, 0.5
        return (0.95, 0.1) if config.floats else (0.7, 0.0)

    won = pareto_front(untimed(value, find_float_regions=[nodes]))[0].config
    assert (won.placement, won.floats) == ("all", nodes)


def test_an_island_that_is_not_worth_it_is_not_made() -> None:
    few, many = frozenset({"a"}), frozenset({"a", "b"})
    found = untimed(lambda c: (0.9, 0.1 * len(c.floats)), find_float_regions=[few, many, frozenset("abc")])
    assert {t.config.floats for t in found} == {frozenset(), few, many}


def test_without_time_the_first_is_made() -> None:
    assert len(untimed(lambda c: (0.5, 0.0), has_time=lambda c: False)) == 1
