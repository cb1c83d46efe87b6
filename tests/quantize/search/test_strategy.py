from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from edgekit.evaluate.fidelity import Fidelity, Score
from edgekit.quantize.recipe import Recipe
from edgekit.quantize.search.measurement import (
    BASELINE,
    COMPENSATED,
    DEFAULT,
    L2_RANGES,
    NO_BIAS_CORRECTION,
    QUICK,
    CandidateConfig,
    Measurement,
)
from edgekit.quantize.search.strategy import (
    best_with_baseline,
    pareto_front,
    rejection_reason,
    search,
    search_untimed,
    select_one,
)

Value = Callable[[CandidateConfig], tuple[float, float]]


def always(config: CandidateConfig) -> bool:
    return True


def tried(config: CandidateConfig, self_map: float, ratio: float | None) -> Measurement:
    return Measurement(config, Fidelity(Score("self-mAP", self_map), 12.0), ratio)


def run(
    value: Value,
    placements: Sequence[str] = ("all", "large"),
    find_float_regions: Sequence[frozenset[str]] = (),
    enough: Callable[[Measurement], bool] | None = lambda each: False,
    has_time: Callable[[CandidateConfig], bool] = always,
) -> list[Measurement]:
    """``value``: choice -> (self-mAP, time over the parent's)."""
    return search(
        placements,
        lambda config: tried(config, *value(config)),
        lambda config, least: find_float_regions,
        enough,
        has_time,
    )


def test_the_likeliest_comes_first_with_the_plainest_beside_it_then_all_placements() -> None:
    found = run(lambda c: (0.9 if c.placement == "large" else 0.5, 0.6))
    assert [(t.config.placement, t.config.recipe) for t in found[:5]] == [
        ("all", DEFAULT),
        ("all", BASELINE),
        ("all", QUICK),
        ("large", QUICK),
        ("large", DEFAULT),
    ]


def test_where_a_front_is_looked_for_nothing_is_optimised_before_it_is_known_to_be_fast() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return 0.99, 0.6 if config.placement == "large" else 1.1

    found = run(value, enough=None)
    assert [(t.config.placement, t.config.recipe) for t in found] == [
        ("all", QUICK),
        ("large", QUICK),
        ("large", DEFAULT),
        ("large", BASELINE),
    ]
    assert [t.config for t in run(value, enough=None, has_time=lambda c: False)] == [
        CandidateConfig("all", QUICK)
    ]


def test_a_change_of_the_recipe_is_kept_where_it_helps() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        recipe = config.recipe
        gain = 0.1 * (not recipe.bias_correction) + 0.1 * (recipe.ranges == "l2")
        return (0.5 + gain if recipe.rounding == "gptq" else 0.1), 0.6

    found = run(value, placements=("all",))
    best = max(found, key=lambda t: t.rank)
    assert best.config.recipe == Recipe(bias_correction=False, ranges="l2")
    # What came after was tried on the best so far, not on the default.
    assert found[-1].config.recipe == Recipe(bias_correction=False, ranges="l2", compensation=1.0)


def test_the_plainest_recipe_wins_where_it_is_best() -> None:
    found = run(lambda c: (0.9 if c.recipe == BASELINE else 0.6, 0.6), placements=("all",))
    assert pareto_front(found)[-1].config.recipe == BASELINE


def test_what_is_not_faster_is_not_followed() -> None:
    found = run(lambda c: (0.99, 1.0))
    assert [t.config for t in found] == [CandidateConfig("all"), CandidateConfig("large", QUICK)]
    found = run(lambda c: (0.9, 0.9 if c.placement == "large" else 1.2))
    assert {t.config.placement for t in found[1:]} == {"large"}
    assert BASELINE in [t.config.recipe for t in found[1:]]  # what is shipped is never worse


def test_islands_are_tried_on_the_best_recipe_where_accuracy_is_missing() -> None:
    nodes = frozenset({"a", "b"})
    found = run(lambda c: (0.95 if c.floats else 0.8, 0.7), placements=("all",), find_float_regions=[nodes])
    assert {(t.config.recipe, t.config.floats) for t in found} >= {(DEFAULT, nodes), (BASELINE, nodes)}
    saturated = run(lambda c: (0.99, 0.7), placements=("all",), find_float_regions=[nodes])
    assert not any(t.config.floats for t in saturated)


def test_an_island_must_bring_what_makes_it_a_point_of_its_own() -> None:
    def needed(value: float, unit: str) -> list[float]:
        asked: list[float] = []

        def measure(config: CandidateConfig) -> Measurement:
            return Measurement(
                config, Fidelity(Score("SNR" if unit else "self-mAP", value, unit), value), 0.7
            )

        def find_float_regions(config: CandidateConfig, least: float) -> Sequence[frozenset[str]]:
            asked.append(round(least, 3))
            return ()

        search(("all",), measure, find_float_regions, lambda each: False, always)
        return asked

    assert needed(0.9, "") == [0.2]  # .02 of the .1 that is missing
    assert needed(0.975, "") == [0.8]
    assert needed(20.0, "dB") == [0.499]  # 3 dB: half of the noise


def test_islands_are_looked_for_where_a_structure_is_worth_shipping_and_leaves_something() -> None:
    points = {"all": (0.9, 0.7), "worse": (0.85, 0.75), "fast": (0.8, 0.5), "slow": (0.95, 1.1)}

    def asked(of_default: float) -> list[str]:
        found: list[str] = []

        def measure(config: CandidateConfig) -> Measurement:
            self_map, ratio = points[config.placement]
            return tried(config, of_default if config == CandidateConfig("all") else self_map, ratio)

        def find_float_regions(config: CandidateConfig, least: float) -> Sequence[frozenset[str]]:
            found.append(config.placement)
            return ()

        search(tuple(points), measure, find_float_regions, lambda each: False, always)
        return found

    assert asked(0.9) == ["fast", "all"]
    assert asked(0.99) == ["fast"]


def test_it_ends_when_enough_or_out_of_time() -> None:
    found = run(lambda c: (0.9, 0.6), enough=lambda t: t.rank >= 0.9)
    assert [t.config for t in found] == [
        CandidateConfig("all"),
        CandidateConfig("all", BASELINE),
        CandidateConfig("all", L2_RANGES),
    ]
    found = run(lambda c: (0.99, 0.6), enough=lambda t: t.rank >= 0.9)  # nothing is left to win
    assert [t.config for t in found] == [CandidateConfig("all"), CandidateConfig("all", BASELINE)]
    assert [t.config for t in run(lambda c: (0.9, 0.6), has_time=lambda c: False)] == [CandidateConfig("all")]


def test_what_is_enough_is_compared_with_what_may_be_better() -> None:
    found = run(lambda c: (0.95 if c.recipe == BASELINE else 0.9, 0.6), enough=lambda t: t.rank >= 0.9)
    assert [t.config.recipe for t in found] == [DEFAULT, BASELINE, L2_RANGES, NO_BIAS_CORRECTION]
    nodes = frozenset({"a"})
    found = run(
        lambda c: (0.9 if c.floats else 0.5, 0.6), find_float_regions=[nodes], enough=lambda t: t.rank >= 0.9
    )
    assert [t.config.recipe for t in found if t.config.floats] == [DEFAULT, BASELINE, L2_RANGES]


def test_what_is_enough_but_hardly_faster_is_compared_with_the_other_placements() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return (0.95, 0.95) if config.placement == "all" else (0.9 + 0.03 * (config.recipe == L2_RANGES), 0.8)

    found = run(value, enough=lambda t: t.rank >= 0.9)
    assert [(t.config.placement, t.config.recipe) for t in found] == [
        ("all", DEFAULT),
        ("large", QUICK),
        ("large", DEFAULT),
        ("large", BASELINE),
        ("large", L2_RANGES),
    ]
    assert select_one(pareto_front(found)) is found[-1]
    # What the other one is worth is not enough, or there is no time for it.
    found = run(value, enough=lambda t: t.rank >= 0.94)
    assert select_one(pareto_front([t for t in found if t.rank >= 0.94])).config.placement == "all"
    found = run(value, enough=lambda t: t.rank >= 0.5, has_time=lambda config: False)
    assert select_one(pareto_front(found)).config.placement == "all"


def test_of_a_front_the_most_accurate_that_is_surely_faster_is_the_one() -> None:
    points = ((0.8, 0.5), (0.9, 0.8), (0.97, 0.95))
    fast, slow, slower = (tried(CandidateConfig("all"), self_map, ratio) for self_map, ratio in points)
    assert select_one([fast, slow, slower]) is slow
    assert select_one([slower]) is slower


def test_where_only_decibels_tell_what_clips_more_is_tried_and_where_classes_do_not() -> None:
    def recipes(metric: str, unit: str) -> list[Recipe]:
        def measure(config: CandidateConfig) -> Measurement:
            return Measurement(config, Fidelity(Score(metric, 20.0 if unit else 0.9, unit), 20.0), 0.6)

        found = search(("all",), measure, lambda config, least: (), lambda t: True, always)
        return [t.config.recipe for t in found]

    assert recipes("SNR", "dB") == [DEFAULT, BASELINE, L2_RANGES]
    assert recipes("top-1 agreement", "") == [DEFAULT, BASELINE]


def test_where_time_is_short_what_costs_little_still_goes_on() -> None:
    found = run(lambda c: (0.5, 0.6), has_time=lambda c: c.recipe.rounding == "nearest")
    assert [t.config.recipe for t in found] == [DEFAULT, BASELINE, QUICK, QUICK]
    nodes = frozenset({"a"})
    found = run(
        lambda c: (0.5, 0.6), find_float_regions=[nodes], has_time=lambda c: c.recipe.rounding == "nearest"
    )
    assert [t.config.recipe for t in found if t.config.floats] == [QUICK]


def test_numbers_come_before_islands_and_may_spare_them() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return (0.99 if config.recipe.ranges == "l2" else 0.9), 0.6

    nodes = frozenset({"a"})
    found = run(value, placements=("all",), find_float_regions=[nodes])
    assert found[-1].config.recipe.ranges == "l2"
    assert not any(t.config.floats for t in found)
    # An island has the best numbers that there are without it.
    found = run(lambda c: (0.95 if c.recipe.ranges == "l2" else 0.9, 0.6), ("all",), [nodes])
    assert [t.config.recipe.ranges for t in found if t.config.floats] == ["l2"]


def test_no_candidate_is_made_twice() -> None:
    found = run(lambda c: (0.5, 0.6), find_float_regions=[frozenset({"a"})])
    configs = [t.config for t in found]
    assert len(configs) == len(set(configs))


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(0.9, 0.6)], [0]),
        ([(0.9, 0.6), (0.8, 0.5)], [1, 0]),
        ([(0.9, 0.6), (0.8, 0.6)], [0]),  # dominated
        ([(0.9, 0.6), (0.89, 0.5)], [1]),  # as good, and faster
        ([(0.9, 0.6), (0.8, 0.595)], [0]),  # as fast, and better
        ([(0.9, 0.98), (0.8, 1.2)], []),  # not faster than the parent
        ([(0.97, 0.9), (0.9, 0.7), (0.8, 0.5), (0.85, 0.8)], [2, 1, 0]),
    ],
)
def test_the_front(points: list[tuple[float, float]], kept: list[int]) -> None:
    all_ = [tried(CandidateConfig(str(i)), *point) for i, point in enumerate(points)]
    assert [all_.index(t) for t in pareto_front(all_)] == kept


@pytest.mark.parametrize(
    ("classes", "snr_db", "saturated"),
    [(1.0, 26.0, True), (1.0, 24.0, False), (0.9, 30.0, False), (0.9, 41.0, True)],
)
def test_where_classes_agree_less_noise_wins_nothing(classes: float, snr_db: float, saturated: bool) -> None:
    fast = Measurement(CandidateConfig("a"), Fidelity(Score("top-1 agreement", classes), snr_db), 0.5)
    slow = Measurement(CandidateConfig("b"), Fidelity(Score("top-1 agreement", 1.0), 60.0), 0.8)
    assert fast.saturated is saturated
    assert pareto_front([fast, slow]) == ([fast] if saturated else [fast, slow])


def test_the_front_of_what_could_not_be_timed_is_the_best() -> None:
    all_ = [tried(CandidateConfig("a"), 0.8, None), tried(CandidateConfig("b"), 0.9, None)]
    assert pareto_front(all_) == [all_[1]]


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


def test_nothing_is_shipped_that_rounding_to_nearest_beats() -> None:
    def measure(config: CandidateConfig) -> Measurement:
        return tried(config, 0.9 if config.recipe == BASELINE else 0.8, 0.5)

    nodes = frozenset({"a"})
    winner = measure(CandidateConfig("all", DEFAULT, nodes))
    assert best_with_baseline(winner, [winner], measure).config == CandidateConfig("all", BASELINE, nodes)
    better = tried(CandidateConfig("all"), 0.95, 0.5)
    assert best_with_baseline(better, [better], measure) is better

    def broken(config: CandidateConfig) -> Measurement:
        raise AssertionError("it was measured already")

    known = measure(CandidateConfig("all", BASELINE))
    assert best_with_baseline(better, [known], broken) is better
    assert best_with_baseline(known, [known], broken) is known


def test_why_a_loser_lost() -> None:
    winner = tried(CandidateConfig("all"), 0.9, 0.5)
    assert rejection_reason(tried(CandidateConfig("b"), 0.8, 1.2), [winner], "") == "1.20x the time of fp32"
    assert rejection_reason(tried(CandidateConfig("b"), 0.3, 0.5), [winner], "missed") == "missed"
    assert rejection_reason(tried(CandidateConfig("b"), 0.85, 0.6), [winner], "") == (
        "self-mAP 0.850 at 0.60x the time of fp32: all, l4, gptq, bias is better and no slower"
    )
    assert rejection_reason(tried(CandidateConfig("b"), 0.91, 0.6), [winner], "") == (
        "self-mAP 0.910 at 0.60x the time of fp32: too close to another one to be worth its size"
    )
    assert (
        rejection_reason(Measurement(CandidateConfig("b"), None, None, "no kernel"), [winner], "")
        == "no kernel"
    )


def test_a_choice_in_words() -> None:
    config = CandidateConfig("large", Recipe(compensation=1.0, bias_correction=False), frozenset({"x"}))
    assert str(config) == "large, l4, gptq, ridge 1, 1 nodes float"
