from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.fronts import pareto_front, preferred
from edgekit.compiler.quantize.search.measurement import (
    BASELINE,
    DEFAULT,
    L2_RANGES,
    NO_BIAS_CORRECTION,
    QUICK,
    TIE,
    CandidateConfig,
    Measurement,
)
from edgekit.compiler.quantize.search.strategy import MAX_CANDIDATES, search_fastest, search_front

Value = Callable[[CandidateConfig], tuple[float, float]]


def always(_: object) -> bool:
    return True


def apart(placement: str) -> frozenset[str]:
    """Return nodes that stay float, so that no placement has more in float than another."""
    return frozenset({placement})


def tried(config: CandidateConfig, self_map: float, ratio: float | None) -> Measurement:
    return Measurement(config, Fidelity(Score("self-mAP", self_map), 12.0), ratio)


def fastest(
    value: Value,
    placements: Sequence[str] = ("all", "large"),
    find_float_regions: Sequence[frozenset[str]] = (),
    enough: Callable[[Measurement], bool] = lambda each: False,
    near: Callable[[Measurement], bool] = lambda each: True,
    has_time: Callable[[CandidateConfig], bool] = always,
    floats_of: Callable[[str], frozenset[str]] = apart,
    unlikely: Collection[str] = (),
) -> list[Measurement]:
    """``value``: choice -> (self-mAP, time over the parent's)."""
    return search_fastest(
        placements,
        floats_of,
        lambda config: tried(config, *value(config)),
        lambda config, least: find_float_regions,
        enough,
        near,
        has_time,
        unlikely,
    )


def front(
    value: Value,
    placements: Sequence[str] = ("all", "large"),
    find_float_regions: Sequence[frozenset[str]] = (),
    has_time: Callable[[CandidateConfig], bool] = always,
    near: Callable[[Measurement], bool] = always,
    floats_of: Callable[[str], frozenset[str]] = apart,
) -> list[Measurement]:
    return search_front(
        placements,
        floats_of,
        lambda config: tried(config, *value(config)),
        lambda config, least: find_float_regions,
        near,
        has_time,
    )


def choices(found: Sequence[Measurement]) -> list[tuple[str, Recipe]]:
    return [(each.config.placement, each.config.recipe) for each in found]


def test_every_placement_is_timed_before_one_is_refined_and_the_fastest_is_the_first() -> None:
    times = {"all": 0.8, "large": 0.6, "few": 0.7}
    found = fastest(
        lambda c: (0.9 if c.recipe == L2_RANGES else 0.8, times[c.placement]),
        tuple(times),
        enough=lambda t: t.rank >= 0.9,
    )
    assert choices(found) == [
        ("all", QUICK),
        ("large", QUICK),
        ("few", QUICK),
        ("large", L2_RANGES),
        ("large", BASELINE),
    ]
    assert preferred(found).config.placement == "large"


def test_placements_are_timed_until_they_get_slower_and_the_rest_where_those_are_not_enough() -> None:
    times = {"all": 0.5, "most": 0.6, "half": 0.7, "few": 0.8, "one": 0.9}

    def value(config: CandidateConfig) -> tuple[float, float]:
        return (0.95 if config.placement == "one" else 0.5), times[config.placement]

    found = fastest(value, tuple(times), enough=lambda t: t.config.placement == "all")
    assert {t.config.placement for t in found} == {"all", "most", "half"}
    found = fastest(value, tuple(times), enough=lambda t: t.rank >= 0.9)
    assert pareto_front([t for t in found if t.rank >= 0.9])[0].config.placement == "one"
    # Nothing that is hardly faster than the parent ends it.
    times = dict.fromkeys(times, 1.1) | {"all": 0.9, "one": 0.6}
    found = fastest(value, tuple(times), enough=lambda t: t.rank >= 0.9)
    assert choices(found)[:5] == [(name, QUICK) for name in times]


def test_what_was_inaccurate_on_another_target_waits_until_nothing_else_is_enough() -> None:
    accuracy = {"all": 0.8, "most": 0.9, "few": 0.96}
    times = {"all": 0.6, "most": 0.65, "few": 0.8}

    def placements(enough: float) -> list[str]:
        found = fastest(
            lambda config: (accuracy[config.placement], times[config.placement]),
            tuple(times),
            enough=lambda each: each.rank >= enough,
            near=lambda each: each.rank >= enough,
            unlikely={"most"},
        )
        return list(dict.fromkeys(each.config.placement for each in found))

    assert placements(enough=0.95) == ["all", "few"]
    assert placements(enough=0.97) == ["all", "few", "most"]


def test_of_two_that_are_as_fast_the_one_with_less_in_float_is_refined() -> None:
    """A noisy time decides nothing: times differ by up to TIE on a busy machine."""
    shares, points = {"all": 0.4, "large": 0.2, "few": 0.0}, {"all": 0.6, "large": 0.6 * TIE, "few": 0.72}
    for noise in (1.0, 0.97):

        def measure(config: CandidateConfig, noise: float = noise) -> Measurement:
            ratio = points[config.placement] * (noise if config.placement == "large" else 1.0)
            return replace(tried(config, 0.9, ratio), float_share=shares[config.placement])

        found = search_fastest(
            tuple(points),
            apart,
            measure,
            lambda config, least: (),
            lambda t: t.config.recipe == L2_RANGES,
            always,
            always,
        )
        assert found[3].config == CandidateConfig("large", L2_RANGES)


def test_what_is_not_accurate_enough_gives_way_to_the_next_fastest() -> None:
    points = {"all": (0.5, 0.6), "large": (0.9, 0.7), "few": (0.99, 0.9)}
    found = fastest(lambda c: points[c.placement], tuple(points), enough=lambda t: t.rank >= 0.9)
    refined = [each.config.placement for each in found[3:]]
    assert refined == ["all", "large", "large"]
    # Nothing is slower than what is shipped but what was timed at first.
    assert not any(t.config.placement == "few" for t in found[3:])


def test_recipes_are_for_what_they_may_bring_to_the_limit() -> None:
    points = {"all": (0.5, 0.6), "large": (0.9, 0.7)}
    found = fastest(
        lambda c: points[c.placement],
        tuple(points),
        enough=lambda t: t.rank > 0.95,
        near=lambda t: t.rank > 0.8,
    )
    assert {t.config.placement for t in found if t.config.recipe != QUICK} == {"large"}


def test_a_search_ends_after_so_many_candidates() -> None:
    regions = [frozenset({str(number)}) for number in range(100)]
    found = fastest(lambda c: (0.5, 0.6), find_float_regions=regions)
    assert len(found) == MAX_CANDIDATES["int8"]
    assert len(front(lambda c: (0.5, 0.6), find_float_regions=regions)) == MAX_CANDIDATES["auto"]


def test_what_is_enough_when_rounded_to_nearest_ends_it_too() -> None:
    found = fastest(
        lambda c: (0.9 if c.recipe == QUICK else 0.5, 0.6),
        ("all",),
        [frozenset({"a"})],
        lambda t: t.rank >= 0.9,
    )
    assert [t.config.recipe for t in found] == [QUICK, L2_RANGES, BASELINE]
    assert not any(t.config.floats for t in found)


def test_what_is_not_faster_is_not_refined() -> None:
    found = fastest(lambda c: (0.99, 1.1), enough=lambda t: t.faster)
    assert choices(found) == [("all", QUICK), ("large", QUICK)]


def test_float_regions_join_by_their_times() -> None:
    few, many = frozenset({"a"}), frozenset({"a", "b"})

    def value(config: CandidateConfig) -> tuple[float, float]:
        if config.placement == "large":
            return 0.95, 0.9
        return 0.5 + 0.25 * len(config.floats), 0.55 + 0.15 * len(config.floats)

    found = fastest(value, find_float_regions=[few, many], enough=lambda t: t.rank >= 0.95)
    # Without the regions of "all", which are timed after it was not enough, it is not to be had at 0.9.
    assert [t.config for t in found if t.config.floats][:2] == [
        CandidateConfig("all", QUICK, many),
        CandidateConfig("all", QUICK, few),
    ]
    assert preferred([t for t in found if t.rank >= 0.95]).config.placement == "large"
    found = fastest(value, find_float_regions=[few, many], enough=lambda t: t.rank >= 0.75)
    assert preferred([t for t in found if t.rank >= 0.75]).config.floats == few


def test_other_recipes_are_for_where_nothing_is_enough() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        best = config.recipe == NO_BIAS_CORRECTION
        return (0.95 if best else 0.8 + 0.05 * (config.placement == "all")), 0.6

    found = fastest(value, enough=lambda t: t.rank >= 0.9)
    assert choices(found).index(("all", NO_BIAS_CORRECTION)) > choices(found).index(("large", L2_RANGES))
    assert ("large", NO_BIAS_CORRECTION) not in choices(found)


def test_what_is_enough_is_compared_with_what_may_be_better() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return {BASELINE: 0.95, QUICK: 0.8}.get(config.recipe, 0.9), 0.6

    found = fastest(value, ("all",), enough=lambda t: t.rank >= 0.9)
    assert [t.config.recipe for t in found] == [QUICK, L2_RANGES, BASELINE, NO_BIAS_CORRECTION]
    # Beyond saturation the samples can't tell recipes apart: the one with optimized weights is preferred.
    found = fastest(lambda c: ({QUICK: 0.996}.get(c.recipe, 0.99), 0.6), ("all",), enough=lambda t: True)
    # The baseline, which has none, is not measured.
    assert [t.config.recipe for t in found] == [QUICK, L2_RANGES]
    assert preferred(found).config.recipe == L2_RANGES


def test_no_more_stays_float_than_is_good_enough_where_float_costs_time() -> None:
    """Nested placements: "most" is good enough; "half" and "few" have more in float."""
    floats = {"all": "", "most": "a", "half": "ab", "other": "c", "few": "abd"}
    accuracy = {"most": 0.95, "half": 0.96, "few": 0.97}

    def placements_of(times: dict[str, float], enough: float = 0.9) -> set[str]:
        found = fastest(
            lambda config: (accuracy.get(config.placement, 0.5), times[config.placement]),
            tuple(floats),
            enough=lambda each: each.rank >= enough and each.faster,
            near=lambda each: each.rank >= enough,
            floats_of=lambda placement: frozenset(floats[placement]),
        )
        return {each.config.placement for each in found}

    slower_in_float = {"all": 0.8, "most": 0.82, "half": 0.84, "other": 0.81, "few": 0.86}
    assert placements_of(slower_in_float) == {"all", "most", "other"}
    # Float kernels are faster here, and all placements are timed.
    assert placements_of({**slower_in_float, "most": 0.75, "half": 0.7, "few": 0.6}) == set(floats)
    # What is left out counts as slow, as what it has more in float than.
    slow_in_float = {"all": 0.6, "most": 0.7, "half": 0.75, "other": 0.61, "few": 0.8}
    assert placements_of(slow_in_float) == {"all", "most"}
    # None of those that may be left out is good enough.
    assert placements_of(slower_in_float, enough=0.965) == set(floats)


@pytest.mark.parametrize(
    ("unit", "recipes"), [("dB", [QUICK, DEFAULT, BASELINE]), ("", [QUICK, L2_RANGES, BASELINE])]
)
def test_what_clips_more_is_tried_first_for_the_scores_of_tasks(unit: str, recipes: list[Recipe]) -> None:
    def measure(config: CandidateConfig) -> Measurement:
        score = Score("SNR", 20.0, unit) if unit else Score("self-mAP", 0.9)
        return Measurement(config, Fidelity(score, 20.0), 0.6)

    found = search_fastest(
        ("all",),
        apart,
        measure,
        lambda config, least: (),
        lambda t: t.config.recipe == recipes[1],
        always,
        always,
    )
    assert [t.config.recipe for t in found] == recipes


def test_without_time_one_is_measured_and_what_is_enough_has_its_baseline() -> None:
    def never(config: CandidateConfig) -> bool:
        return False

    assert choices(fastest(lambda c: (0.9, 0.6), has_time=never)) == [("all", QUICK)]
    found = fastest(lambda c: (0.9, 0.6), enough=lambda t: t.rank >= 0.9, has_time=never)
    assert choices(found) == [("all", QUICK), ("all", BASELINE)]


def test_no_candidate_is_measured_twice() -> None:
    regions = [frozenset({"a"})]
    for found in (
        fastest(lambda c: (0.5, 0.6), find_float_regions=regions),
        front(lambda c: (0.5, 0.6), find_float_regions=regions),
    ):
        configs = [t.config for t in found]
        assert len(configs) == len(set(configs))


def test_where_a_front_is_looked_for_nothing_is_optimised_before_it_is_known_to_be_fast() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return 0.99, 0.6 if config.placement == "large" else 1.1

    found = front(value)
    assert [(t.config.placement, t.config.recipe) for t in found] == [
        ("all", QUICK),
        ("large", QUICK),
        ("large", DEFAULT),  # saturated: the baseline cannot be better
    ]
    assert [t.config for t in front(value, has_time=lambda c: False)] == [CandidateConfig("all", QUICK)]


def test_a_change_of_the_recipe_is_kept_where_it_helps() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        recipe = config.recipe
        gain = 0.1 * (not recipe.bias_correction) + 0.1 * (recipe.ranges == "l2")
        return (0.5 + gain if recipe.rounding == "gptq" else 0.1), 0.6

    found = front(value, placements=("all",))
    best = max(found, key=lambda t: t.rank)
    assert best.config.recipe == Recipe(bias_correction=False, ranges="l2")
    # What came after was tried on the best so far, not on the default.
    assert found[-1].config.recipe == Recipe(bias_correction=False, ranges="l2", compensation=1.0)


def test_the_plainest_recipe_wins_where_it_is_best() -> None:
    found = front(lambda c: (0.9 if c.recipe == BASELINE else 0.6, 0.6), placements=("all",))
    assert pareto_front(found)[-1].config.recipe == BASELINE


def test_a_front_follows_only_what_is_faster() -> None:
    found = front(lambda c: (0.99, 1.0))
    assert choices(found) == [("all", QUICK), ("large", QUICK)]
    found = front(lambda c: (0.9, 0.9 if c.placement == "large" else 1.2))
    assert {t.config.placement for t in found[1:]} == {"large"}
    assert BASELINE in [t.config.recipe for t in found[1:]]  # what is shipped is never worse


def test_islands_are_tried_on_the_best_recipe_where_accuracy_is_missing() -> None:
    nodes = frozenset({"a", "b"})
    found = front(lambda c: (0.95 if c.floats else 0.8, 0.7), placements=("all",), find_float_regions=[nodes])
    assert {(t.config.recipe, t.config.floats) for t in found} >= {(DEFAULT, nodes), (BASELINE, nodes)}
    saturated = front(lambda c: (0.99, 0.7), placements=("all",), find_float_regions=[nodes])
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

        search_front(("all",), apart, measure, find_float_regions, always, always)
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
            better = config.placement == "fast" and config.recipe == DEFAULT
            return tried(config, of_default if better else self_map, ratio)

        def find_float_regions(config: CandidateConfig, least: float) -> Sequence[frozenset[str]]:
            found.append(config.placement)
            return ()

        search_front(tuple(points), apart, measure, find_float_regions, always, always)
        return found

    assert asked(0.8) == ["fast", "all"]
    assert asked(0.99) == []


def test_on_a_front_nothing_is_refined_that_no_recipe_makes_accurate_enough() -> None:
    points = {"all": (0.8, 0.5), "large": (0.92, 0.6)}

    def refined(least: float) -> set[str]:
        found = front(lambda c: points[c.placement], near=lambda each: each.rank >= least)
        return {each.config.placement for each in found if each.config.recipe == DEFAULT}

    assert refined(0.9) == {"large"}
    assert refined(0.95) == {"all", "large"}  # none may be enough, and the best is shipped by force


def test_a_front_has_nothing_that_is_slower_than_a_saturated_candidate() -> None:
    floats = {"all": "", "most": "a", "half": "ab", "few": "abd"}
    times = {"all": 0.6, "most": 0.7, "half": 0.75, "few": 0.5}
    regions = [frozenset(name) for name in "xyz"]

    def value(config: CandidateConfig) -> tuple[float, float]:
        return (0.99 if config.placement != "all" else 0.9), times[config.placement] + len(config.floats) / 8

    found = front(value, tuple(floats), regions, floats_of=lambda name: frozenset(floats[name]))
    assert {each.config.placement for each in found} == {"all", "most"}
    assert {each.config.floats for each in found} == {frozenset(), regions[0]}


def test_numbers_come_before_islands_and_may_spare_them() -> None:
    def value(config: CandidateConfig) -> tuple[float, float]:
        return (0.99 if config.recipe.ranges == "l2" else 0.9), 0.6

    nodes = frozenset({"a"})
    found = front(value, placements=("all",), find_float_regions=[nodes])
    assert found[-1].config.recipe.ranges == "l2"
    assert not any(t.config.floats for t in found)
    # An island has the best numbers that there are without it.
    found = front(lambda c: (0.95 if c.recipe.ranges == "l2" else 0.9, 0.6), ("all",), [nodes])
    assert [t.config.recipe.ranges for t in found if t.config.floats] == ["l2"]


def test_regions_end_with_the_first_that_is_not_accurate_enough() -> None:
    few, many, most = (frozenset(names) for names in ("a", "ab", "abc"))
    points = {few: (0.9, 0.62), many: (0.94, 0.64), most: (0.98, 0.66)}

    def regions(large: tuple[float, float]) -> list[frozenset[str]]:
        whole = {"all": (0.8, 0.5), "large": large}
        found = fastest(
            lambda c: points.get(c.floats) or whole[c.placement],
            find_float_regions=[few, many, most],
            enough=lambda t: t.rank >= 0.95,
            near=lambda t: t.rank >= 0.92,
        )
        return [t.config.floats for t in found if t.config.floats and t.config.recipe == QUICK]

    assert regions((0.99, 0.8)) == [most, many], "with less in float it would be less accurate still"
    points[most] = (0.94, 0.66)
    assert regions((0.99, 0.8)) == [most]
    assert regions((0.9, 0.6)) == [most, many, few], "nothing is good enough: a better recipe may help"
