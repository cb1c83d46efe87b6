from __future__ import annotations

import pytest

from edgekit.evaluate.fidelity import Fidelity, Score
from edgekit.quantize.search.measurement import CandidateConfig, Measurement
from edgekit.quantize.search.strategy import MAX_POINTS, front_with


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
