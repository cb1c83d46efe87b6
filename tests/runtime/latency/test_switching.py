"""Switching: soon, to the most accurate that holds; back with room only; once in a hysteresis."""

from __future__ import annotations

import pytest

from edgekit.runtime.latency.switching import (
    HOLD_OFF_S,
    PrecisionChoice,
    SwitchingState,
    decide,
    missed,
    p95,
)

CHOICES = [PrecisionChoice("float", 20.0), PrecisionChoice("half", 14.0), PrecisionChoice("int8", 8.0)]
START = SwitchingState()


def after(
    load: float, state: SwitchingState = START, now_s: float = 100.0, answers: int = 40
) -> SwitchingState:
    """Decide on answers of a machine that is so much slower than expected; 5 ms are not the engine's."""
    infer_s = [CHOICES[state.index].time_ms / 1000 * load] * answers
    return decide(state, CHOICES, infer_s, [one + 0.005 for one in infer_s], 0.040, now_s)


@pytest.mark.parametrize(("load", "at"), [(1.0, 0), (1.7, 0), (2.0, 1), (3.0, 2), (10.0, 2)])
def test_the_most_accurate_that_is_expected_to_hold_serves(load: float, at: int) -> None:
    assert after(load).index == at


@pytest.mark.parametrize(("load", "at"), [(1.0, 0), (1.1, 0), (1.3, 1), (2.5, 2), (9.0, 2)])
def test_back_goes_who_would_hold_with_room(load: float, at: int) -> None:
    assert after(load, SwitchingState(2, 0.0)).index == at


def test_between_two_switches_lies_the_hysteresis() -> None:
    state = SwitchingState(0, 100.0)
    assert after(5.0, state, 100.0 + HOLD_OFF_S - 0.01) is state
    assert after(5.0, state, 100.0 + HOLD_OFF_S).index == 2


def test_who_came_back_too_early_waits_twice_as_long() -> None:
    back = after(1.0, SwitchingState(2, 0.0))
    assert (back.index, back.switched_back, back.hold_off_s) == (0, True, HOLD_OFF_S)
    again = after(5.0, back, 1000.0)
    assert (again.index, again.hold_off_s) == (2, 2 * HOLD_OFF_S)
    assert after(1.0, again, 1000.0 + HOLD_OFF_S) is again


def test_a_few_hiccups_miss_nothing() -> None:
    assert not missed([0.01] * 16 + [0.5] * 4, 0.04)  # one in five, but four
    assert missed([0.01] * 15 + [0.5] * 5, 0.04)
    assert not missed([0.01] * 95 + [0.5] * 5, 0.04)
    assert (p95([]), p95([3.0, 1.0, 2.0]), p95(list(range(100)))) == (0.0, 3.0, 94)


def test_few_answers_bring_nobody_back() -> None:
    assert after(1.0, SwitchingState(2, 0.0), answers=19).index == 2


def strained(state: SwitchingState, load: float = 1.0, now_s: float = 100.0) -> SwitchingState:
    infer_s = [CHOICES[state.index].time_ms / 1000 * load] * 40
    return decide(state, CHOICES, infer_s, [one + 0.005 for one in infer_s], 0.040, now_s, strained=True)


def test_a_device_that_is_held_back_goes_one_step_and_stays() -> None:
    assert strained(START) == SwitchingState(1, 100.0)
    assert strained(SwitchingState(1, 100.0), now_s=100.0 + HOLD_OFF_S - 0.01) == SwitchingState(1, 100.0)
    assert strained(SwitchingState(1, 0.0)).index == 2
    assert strained(SwitchingState(2, 0.0)) == SwitchingState(2, 0.0)  # the last one: not back either
    assert strained(START, load=3.0).index == 2  # missed: at once to who holds it


def test_one_choice_stays() -> None:
    state = SwitchingState()
    assert decide(state, CHOICES[:1], [9.0] * 30, [9.0] * 30, 0.04, 1.0) is state


BOTH = [
    PrecisionChoice("float@gpu", 5.0, device="gpu"),
    PrecisionChoice("float", 20.0),
    PrecisionChoice("int8", 8.0),
]


def test_a_slow_gpu_says_nothing_of_the_cpu() -> None:
    """The CPU's float takes its own 20 ms, not four times the GPU's 60."""
    slow = [0.06] * 40
    assert decide(SwitchingState(), BOTH, slow, slow, 0.04, 100.0).index == 1
    assert decide(SwitchingState(), BOTH, slow, slow, 0.015, 100.0).index == 2


def test_no_slower_device_is_used_where_none_meets_the_budget() -> None:
    slow = [0.007] * 40
    assert decide(SwitchingState(), BOTH, slow, slow, 0.004, 100.0).index == 0
    assert decide(SwitchingState(), BOTH, slow, slow, 0.04, 100.0, strained=True).index == 0


def test_the_gpu_is_tried_again_after_the_hold_off() -> None:
    on_cpu, taken = SwitchingState(1, since_s=0.0), [0.02] * 40
    assert decide(on_cpu, BOTH, taken, taken, 0.04, HOLD_OFF_S - 1).index == 1
    back = decide(on_cpu, BOTH, taken, taken, 0.04, HOLD_OFF_S + 1)
    assert (back.index, back.switched_back) == (0, True)
