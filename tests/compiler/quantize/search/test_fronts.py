from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.compiler.evaluate.fidelity import Fidelity, Score
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.search.fronts import (
    MAX_POINTS,
    best_so_far,
    best_with_baseline,
    front_with,
    pareto_front,
    preferred,
    rejection_reason,
)
from edgekit.compiler.quantize.search.measurement import BASELINE, DEFAULT, TIE, CandidateConfig, Measurement


def point(name: str, self_map: float, ratio: float | None) -> Measurement:
    return Measurement(CandidateConfig(name), Fidelity(Score("self-mAP", self_map), 20.0), ratio)


ONE = point("one", 0.90, 0.70)


@pytest.mark.parametrize(
    ("front", "names"),
    [
        ([], ["one"]),
        ([point("a", 0.91, 0.60)], ["a"]),  # better and faster
        ([point("a", 0.90, 0.71)], ["a"]),  # as good, and as fast up to noise
        ([point("a", 0.89, 0.60)], ["a", "one"]),  # one gains little over it, and is more accurate
        ([point("a", 0.89, 0.70)], ["one"]),  # no faster, and worse
        ([point("a", 0.95, 0.90)], ["one", "a"]),  # more accurate and slower
    ],
)
def test_what_int8_ships_is_on_the_front_of_auto(front: list[Measurement], names: list[str]) -> None:
    assert [each.config.placement for each in front_with(front, ONE)] == names


def test_it_takes_the_place_of_the_next_less_accurate() -> None:
    front = [point("a", 0.80, 0.50), point("b", 0.89, 0.60), point("c", 0.95, 0.90)]
    assert len(front) == MAX_POINTS
    assert [each.config.placement for each in front_with(front, ONE)] == ["a", "one", "c"]
    front = [point("a", 0.92, 0.80), point("b", 0.95, 0.85), point("c", 0.99, 0.9)]
    assert [each.config.placement for each in front_with(front, ONE)] == ["one", "b", "c"]


def test_of_what_was_not_timed_the_more_accurate() -> None:
    one = point("one", 0.9, None)
    assert front_with([point("a", 0.95, None)], one)[0].config.placement == "a"
    assert front_with([point("a", 0.85, None)], one) == [one]


def tried(config: CandidateConfig, self_map: float, ratio: float | None) -> Measurement:
    return Measurement(config, Fidelity(Score("self-mAP", self_map), 12.0), ratio)


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


def test_a_front_has_optimized_weights_beyond_saturation() -> None:
    """The samples cannot tell such recipes apart; on others the one with optimized weights lost less."""
    nearest = tried(CandidateConfig("all", BASELINE), 0.996, 0.7)
    optimized, poor = (tried(CandidateConfig("all"), value, 0.7) for value in (0.988, 0.98))
    assert pareto_front([nearest, optimized]) == [optimized]
    assert pareto_front([nearest, poor]) == [nearest]


def test_the_front_of_what_could_not_be_timed_is_the_best() -> None:
    all_ = [tried(CandidateConfig("a"), 0.8, None), tried(CandidateConfig("b"), 0.9, None)]
    assert pareto_front(all_) == [all_[1]]


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
        "self-mAP 0.850 at 0.60x the time of fp32: all, l4, gptq, bias is better and as fast"
    )
    assert rejection_reason(tried(CandidateConfig("b"), 0.91, 0.6), [winner], "") == (
        "self-mAP 0.910 at 0.60x the time of fp32: too similar to another variant to be worth its size"
    )
    assert (
        rejection_reason(Measurement(CandidateConfig("b"), None, None, "no kernel"), [winner], "")
        == "no kernel"
    )


def test_a_choice_in_words() -> None:
    config = CandidateConfig("large", Recipe(compensation=1.0, bias_correction=False), frozenset({"x"}))
    assert str(config) == "large, l4, gptq, ridge 1, 1 nodes float"


def test_times_within_a_tie_do_not_decide_what_is_preferred() -> None:
    some, none = replace(point("some", 0.99, 0.70), float_share=0.4), point("none", 0.95, 0.79)
    again = replace(point("none", 0.97, 0.78), config=CandidateConfig("none", BASELINE))
    assert preferred([some, none]) == none
    assert preferred([some, none, again]) == again  # the better recipe of the two
    assert preferred([some, replace(none, ratio=0.70 * TIE + 0.01)]) == some
    assert preferred([none, some], lambda m: m.rank > 0.98) == some  # the other is not good enough
    untimed = [replace(each, ratio=None) for each in (some, none)]
    assert preferred(untimed) == untimed[1]


@pytest.mark.parametrize(
    ("measured", "parent_ms", "expected"),
    [
        ([], 10.0, ""),
        ([Measurement(CandidateConfig("a"), None, None, "refused")], 10.0, ""),
        ([point("a", 0.95, 0.8), point("b", 0.91, 0.5), point("c", 0.2, 0.1)], 10.0,
         "best 5 ms, self-mAP 0.910"),
        ([point("a", 0.3, 0.5), point("b", 0.5, 0.9)], 10.0,
         "most accurate 9 ms, self-mAP 0.500"),
        ([point("a", 0.95, None)], None, "best self-mAP 0.950"),
        ([Measurement(CandidateConfig("a"), Fidelity(Score("SNR", 30.0, "dB"), 30.0), 0.5)], 10.0,
         "best 5 ms, SNR 30.0 dB"),
    ],
)  # fmt: skip
def test_the_best_so_far_is_told_by_its_time_and_accuracy(
    measured: list[Measurement], parent_ms: float | None, expected: str
) -> None:
    assert best_so_far(measured, parent_ms, lambda each: each.rank >= 0.9) == expected
