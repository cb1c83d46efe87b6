"""The rule that compares a candidate with the model before it: few false alarms, and true ones soon."""

from __future__ import annotations

import random

from edgekit.runtime.metrics.labelled_counts import Counts
from edgekit.runtime.store.health import CandidateWatch, HealthWindow, burns_faster, is_healthy, watched


def first_alarm(rate: float, before: tuple[int, int], answers: int, draw: random.Random) -> int | None:
    bad = 0
    for number in range(1, answers + 1):
        bad += draw.random() < rate
        if burns_faster(Counts(number, 0, bad), before):
            return number
    return None


def test_equal_models_are_seldom_given_up_however_often_one_looks() -> None:
    draw = random.Random(5)
    for rate, before in ((0.01, (10_000, 100)), (0.2, (10_000, 2000)), (0.0, (0, 0))):
        alarms = [first_alarm(rate, before, 1000, draw) for _ in range(300)]
        assert sum(alarm is not None for alarm in alarms) <= 10  # alpha is one in a hundred


def test_worse_models_are_given_up_after_some_dozens_of_answers() -> None:
    draw = random.Random(6)
    for rate, before, limit in ((1.0, (10_000, 10), 4), (0.3, (10_000, 100), 100), (1.0, (0, 0), 10)):
        alarms = [first_alarm(rate, before, 1000, draw) for _ in range(100)]
        found = sorted(alarm for alarm in alarms if alarm is not None)
        assert len(found) == 100
        assert found[95] <= limit


def test_a_model_that_always_fell_back_sets_no_limit() -> None:
    assert not burns_faster(Counts(1000, 1000, 0), (10_000, 10_000))


def test_a_window_needs_time_and_answers_since_the_last_failure() -> None:
    window = HealthWindow(60.0, 10)
    watch = watched(CandidateWatch(0.0), Counts(10), 60.0)
    assert is_healthy(watch, window, 60.0)
    assert not is_healthy(watch, window, 59.9)
    assert not is_healthy(watched(watch, Counts(11, 0, 1), 60.0), window, 60.0)
    assert is_healthy(watched(watched(watch, Counts(11, 0, 1), 60.0), Counts(21, 0, 1), 120.0), window, 120.0)
